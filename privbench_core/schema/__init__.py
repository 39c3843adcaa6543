"""What a database is and what its owner declared about it: values, spec file, reflection of a live source, DDL."""

from privbench_core.schema.ddl import create_keys_sql, create_primary_keys_sql, create_schema_sql, create_tables_sql
from privbench_core.schema.model import (
    Check,
    Column,
    ColumnType,
    Dependency,
    Domain,
    EnumType,
    ForeignKey,
    Index,
    Learn,
    Pattern,
    Range,
    Scalar,
    Schema,
    Table,
    Values,
)
from privbench_core.schema.spec import Spec, dump_spec, load_spec

__all__ = [
    "Check",
    "Column",
    "ColumnType",
    "Dependency",
    "Domain",
    "EnumType",
    "ForeignKey",
    "Index",
    "Learn",
    "Pattern",
    "Range",
    "Scalar",
    "Schema",
    "Spec",
    "Table",
    "Values",
    "create_keys_sql",
    "create_primary_keys_sql",
    "create_schema_sql",
    "create_tables_sql",
    "dump_spec",
    "load_spec",
]
