"""DuckDB files: catalogue, reader, DDL and loader."""
