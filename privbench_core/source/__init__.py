"""Rows as Arrow tables, whatever holds them: folders, DuckDB files, databases; fingerprints and checks."""

from privbench_core.source.base import Source
from privbench_core.source.opening import open_source

__all__ = ["Source", "open_source"]
