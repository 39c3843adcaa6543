"""Write tables as the mappings of a spec file and of a bundle's manifest; `spec.parse` reads them back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privbench_core.schema.columns import Column, Domain, EnumType, Learn, Pattern, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.partitions import Heir
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec import forms
from privbench_core.spec.fields import one_or_list
from privbench_core.spec.model import Change, VersionQuery, Watermark


def dump_enums(schema: Schema) -> dict[str, list[str]]:
    """Return the ``enums`` part."""
    return {enum.name: list(enum.values) for enum in schema.enums}


def dump_views(schema: Schema) -> dict[str, Any]:
    """Return the ``views`` part."""
    return {view.name: forms.VIEW.write(view) for view in schema.views}


def dump_heir(heir: Heir) -> dict[str, Any]:
    """Return an entry of the ``heirs`` of a table."""
    return forms.HEIR.write(
        heir,
        checks=[forms.CHECK.write(check) for check in heir.checks],
        keys={name: one_or_list(columns) for columns, name in heir.keys} or None,
        foreign_keys=[forms.HEIR_KEY.write(key) for key in heir.foreign_keys] or None,
        indexes=[forms.INDEX.write(index) for index in heir.indexes] or None,
    )


def dump_tables(
    schema: Schema, orphans: Mapping[str, str] | None = None, changes: Mapping[str, Change] | None = None
) -> dict[str, Any]:
    """Return the ``tables`` part; ``orphans`` (by `ForeignKey.name`) and ``changes`` are those of `Spec`."""
    orphans, changes = orphans or {}, changes or {}
    return {table.name: _table(table, schema, orphans, changes.get(table.name)) for table in schema.tables}


def _table(table: Table, schema: Schema, orphans: Mapping[str, str], change: Change | None) -> dict[str, Any]:
    enums = {enum.name: enum for enum in schema.enums}
    keys = [_key(key, schema, orphans) for key in table.foreign_keys]
    keys += [_key(key, schema, {}) for key in table.implied_keys]
    lists = {
        "foreign_keys": keys,
        "unique": [list(group) for group in table.unique],
        "key_names": {name: one_or_list(group) for group, name in table.key_names},
        "checks": [forms.CHECK.write(check) for check in table.checks],
        "heirs": [dump_heir(heir) for heir in table.heirs],
        "dependencies": [forms.DEPENDENCY.write(rule) for rule in table.dependencies],
        "generated": {column.name: forms.GENERATED.write(column) for column in table.generated},
        # An enum implies its values, except in a primary key, where the domain declares that the column is modelled.
        "columns": {
            column.name: _column(column, {} if column.name in table.primary_key else enums)
            for column in table.columns
            if column.name != table.row_id
        },
    }
    parted, parts = table.partitioned, table.partitioned.partitions if table.partitioned else ()
    query = {"sql": change.sql} if isinstance(change, VersionQuery) else None
    others = {
        "change": {"watermark": change.column} if isinstance(change, Watermark) else query,
        "public": table.public and not table.empty,
        "row_id": "generated" if table.row_id else None,
        "partitioned": parted and forms.PARTITIONED.write(parted, partitions=list(map(forms.PARTITION.write, parts))),
        "primary_key": None if table.row_id else table.primary_key,
        "indexes": None if table.indexes is None else [forms.INDEX.write(index) for index in table.indexes],
    }
    return forms.TABLE.write(table, **others, **{name: value or None for name, value in lists.items()})


def _key(key: ForeignKey, schema: Schema, orphans: Mapping[str, str]) -> dict[str, Any]:
    target = {"table": key.parent, "columns": list(key.parent_columns)}
    usual = key.parent_columns == schema.table(key.parent).primary_key
    return forms.FOREIGN_KEY.write(key, references=key.parent if usual else target, on_orphan=orphans.get(key.name))


def _column(column: Column, enums: Mapping[str, EnumType]) -> str | dict[str, Any]:
    enum, relative = enums.get(column.sql_type or ""), column.relative
    domain = relative.domain if relative else column.domain
    implied = enum is not None and domain == Values(enum.values)
    content = forms.COLUMN.write(
        column,
        max_length=None if column.max_length == Column.max_length else column.max_length,
        relative_to=relative.to if relative else None,
        domain=None if domain is None or implied else dump_domain(domain),
        sequence=forms.SEQUENCE.write(column.sequence) if column.sequence else None,
    )
    return content if len(content) > 1 else content["type"]


def dump_domain(domain: Domain) -> str | dict[str, Any]:
    """Return a ``domain`` as a spec writes it."""
    match domain:
        case Learn(listed):
            return {"values": "learn"} if listed else "learn"
        case Values(values):
            return {"values": list(values)}
        case Pattern(regex, provider):
            return {"faker": provider} if regex is None else {"pattern": regex}
        case Range(low, high, cells, step):
            given = {"min": low, "max": high, "cells": cells, "step": step}
            return {name: value for name, value in given.items() if value is not None}
