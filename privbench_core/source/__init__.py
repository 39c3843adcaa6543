"""Rows as Arrow tables, whatever holds them: folders, DuckDB files, databases; fingerprints and checks."""
