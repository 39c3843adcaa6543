"""Write tables as the mappings of a spec file and of a bundle's manifest; `spec.parse` reads them back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from privbench_core.schema.change import Change, Content
from privbench_core.schema.columns import (
    Column,
    Domain,
    EnumType,
    Generated,
    IdentitySequence,
    Learn,
    Pattern,
    Range,
    Values,
)
from privbench_core.schema.constraints import ForeignKey, Index
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.change import dump_change


def dump_enums(schema: Schema) -> dict[str, list[str]]:
    """Return the ``enums`` part."""
    return {enum.name: list(enum.values) for enum in schema.enums}


def dump_tables(
    schema: Schema, orphans: Mapping[str, str] | None = None, changes: Mapping[str, Change] | None = None
) -> dict[str, Any]:
    """Return the ``tables`` part.

    Args:
        schema: The database.
        orphans: ``refuse`` or ``drop`` per `ForeignKey.name`; the default is refuse.
        changes: How a change is detected, per table; the default is by content.
    """
    detected = {table.name: dump_change((changes or {}).get(table.name, Content())) for table in schema.tables}
    return {table.name: {**detected[table.name], **_table(table, schema, orphans or {})} for table in schema.tables}


def _table(table: Table, schema: Schema, orphans: Mapping[str, str]) -> dict[str, Any]:
    content: dict[str, Any] = {"public": True} if table.public else {}
    if table.comment is not None:
        content["comment"] = table.comment
    content |= {"row_id": "generated"} if table.row_id else {"primary_key": one_or_list(table.primary_key)}
    if table.foreign_keys:
        content["foreign_keys"] = [_key(key, schema, orphans) for key in table.foreign_keys]
        content["foreign_keys"] += [_key(key, schema, {}) for key in table.implied_keys]
    if table.unique:
        content["unique"] = [list(group) for group in table.unique]
    if table.key_names:
        content["key_names"] = {name: one_or_list(group) for group, name in table.key_names}
    if table.checks:
        content["checks"] = [{"name": check.name, "expression": check.expression} for check in table.checks]
    if table.indexes is not None:
        content["indexes"] = [dump_index(index) for index in table.indexes]
    if table.dependencies:
        content["dependencies"] = [
            {"determinant": one_or_list(rule.determinant), "dependent": one_or_list(rule.dependent)}
            for rule in table.dependencies
        ]
    if table.row_order is not None:
        content["row_order"] = table.row_order
    enums = {enum.name: enum for enum in schema.enums}
    if table.generated:
        content["generated"] = {column.name: dump_generated(column) for column in table.generated}
    # An enum implies its values, except in a primary key, where the domain declares that the column is modelled.
    stored = [column for column in table.columns if column.name != table.row_id]
    content["columns"] = {c.name: _column(c, {} if c.name in table.primary_key else enums) for c in stored}
    return content


def _key(key: ForeignKey, schema: Schema, orphans: Mapping[str, str]) -> dict[str, Any]:
    content: dict[str, Any] = {"columns": one_or_list(key.columns), "references": key.parent}
    if key.parent_columns != schema.table(key.parent).primary_key:
        content["references"] = {"table": key.parent, "columns": list(key.parent_columns)}
    if key.max_children is not None:
        content["max_children"] = key.max_children
    if key.max_children_per_unit is not None:
        content["max_children_per_unit"] = key.max_children_per_unit
    flags = {"owner": key.owner, "optional": key.optional, "same_unit": key.same_unit}
    content |= {name: True for name, value in flags.items() if value}
    removed = None if key.on_unit_removed is None else str(key.on_unit_removed)
    texts = {"on_unit_removed": removed, "constraint": key.constraint, "actions": key.actions}
    content |= {name: text for name, text in texts.items() if text is not None}
    policy = orphans.get(key.name, "refuse")
    return content if policy == "refuse" else content | {"on_orphan": policy}


def _column(column: Column, enums: Mapping[str, EnumType]) -> str | dict[str, Any]:
    content: dict[str, Any] = {"type": str(column.type)}
    if column.precision is not None:
        content |= {"precision": column.precision, "scale": column.scale}
    if column.max_length != Column.max_length:
        content["max_length"] = column.max_length
    enum = enums.get(column.sql_type or "")
    if column.domain is not None and not (enum and column.domain == Values(enum.values)):
        content["domain"] = dump_domain(column.domain)
    if column.relative is not None:
        content |= {"relative_to": column.relative.to, "domain": dump_domain(column.relative.domain)}
    flags = {"nullable": column.nullable, "identity": column.identity}
    content |= {name: True for name, value in flags.items() if value}
    texts = {"sql_type": column.sql_type, "default": column.default, "comment": column.comment, "unit": column.unit}
    content |= {name: text for name, text in texts.items() if text is not None}
    if column.sequence:
        content["sequence"] = dump_sequence(column.sequence)
    return content if len(content) > 1 else str(column.type)


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


def dump_sequence(sequence: IdentitySequence) -> dict[str, Any]:
    """Return a ``sequence`` as a spec writes it, without default values."""
    defaults, found = asdict(IdentitySequence()), asdict(sequence)
    return {name: value for name, value in found.items() if value != defaults[name]}


def dump_index(index: Index) -> dict[str, Any]:
    """Return an item of ``indexes``."""
    content: dict[str, Any] = {"name": index.name, "columns": one_or_list(index.columns)}
    return content if index.using is None else content | {"using": index.using}


def dump_generated(column: Generated) -> dict[str, Any]:
    """Return a value of ``generated``."""
    content: dict[str, Any] = {"sql_type": column.sql_type, "expression": column.expression}
    content |= {} if column.nullable else {"nullable": False}
    return content if column.comment is None else content | {"comment": column.comment}


def one_or_list(names: tuple[str, ...]) -> str | list[str]:
    """Return names as a spec writes them: a single one without brackets."""
    return names[0] if len(names) == 1 else list(names)
