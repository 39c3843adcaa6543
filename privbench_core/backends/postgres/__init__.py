"""PostgreSQL: catalogue, COPY reader, DDL and loader."""
