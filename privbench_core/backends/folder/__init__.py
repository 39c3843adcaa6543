"""Folders of Parquet or CSV files: catalogue and reader."""
