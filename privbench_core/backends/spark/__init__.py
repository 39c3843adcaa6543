"""Spark: sessions of a cluster, and the tables of its catalogue. Only the modules below need PySpark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from privbench_core.errors import SourceError


@contextmanager
def pyspark_needed(what: str) -> Iterator[None]:
    """Say how to install PySpark if an import of it fails; ``what`` needs it."""
    try:
        yield
    except ImportError:
        raise SourceError(f"{what}: PySpark is not installed; run: pip install 'privbench[spark]'") from None
