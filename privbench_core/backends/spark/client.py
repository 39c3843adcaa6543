"""What is used of PySpark's client, imported so that it neither warns nor ends the process."""

from __future__ import annotations

import sys
import warnings
from contextlib import nullcontext
from unittest.mock import patch

# PySpark takes a process without a main module (`python -c`, a worker) for a run of its own tests, and may end it.
_has_main = nullcontext() if hasattr(sys, "ps1") else patch.object(sys, "ps1", "", create=True)
with warnings.catch_warnings(), _has_main:
    warnings.simplefilter("ignore", FutureWarning)  # of pandas 3, which PySpark gets nothing of here
    import grpc
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.errors.exceptions.connect import SparkException
    from pyspark.logger import PySparkLogger
    from pyspark.sql import DataFrame, types
    from pyspark.sql.connect import logging
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.pandas.types import to_arrow_schema

__all__ = [
    "AnalysisException",
    "DataFrame",
    "DefaultChannelBuilder",
    "DefaultPolicy",
    "PySparkException",
    "PySparkLogger",
    "SparkException",
    "SparkSession",
    "grpc",
    "logging",
    "to_arrow_schema",
    "types",
]
