"""The identity of declared values: what a release hangs on, as canonical JSON.

A release is bought once and found again by a key that hashes everything that determined it. So the parts of that key
are spelled out here instead of being taken from `repr`: renaming a class or a field, or reordering fields, must not
make an owner pay again. What may change an identity, and how, is in CONTRIBUTING.md; the keys of the example are pinned
by a test.

Facts that are absent, empty or false are left out, so a new field whose default means "as before" changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from privbench_core.schema.columns import Column, Domain, Learn, Pattern, Range, Values
from privbench_core.schema.constraints import Check, Dependency, ForeignKey

Identity = dict[str, Any]
"""JSON-able: strings, numbers, booleans, lists and mappings of these."""


def canonical_json(value: Any) -> str:
    """Return the one text that stands for a JSON-able value.

    >>> canonical_json({"b": (1, 2.0), "a": "é"})
    '{"a":"é","b":[1,2.0]}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def facts(**given: Any) -> Identity:
    """Return the facts that say something: neither None nor False, and not empty.

    >>> facts(name="age", nullable=False, scale=None, low=0)
    {'name': 'age', 'low': 0}
    """
    return {name: value for name, value in given.items() if value is not None and value is not False and value != []}


def domain_identity(domain: Domain | None) -> Identity | None:
    """Return the identity of a declared domain; None if there is none."""
    match domain:
        case None:
            return None
        case Range():
            return {"range": [domain.low, domain.high], **facts(cells=domain.cells, step=domain.step)}
        case Values():
            return {"values": list(domain.values)}
        case Learn(listed):
            return {"learn": "values" if listed else True}
        case Pattern():
            return {"pattern": facts(regex=domain.regex, provider=domain.provider)}


def column_identity(column: Column) -> Identity:
    """Return what of a column decides its codes and values; what stands in the DDL alone is left out."""
    base = column.relative
    return facts(
        name=column.name,
        type=column.type.value,
        domain=domain_identity(column.domain),
        nullable=column.nullable,
        precision=column.precision,
        scale=column.scale,
        max_length=column.max_length,
        sql_type=column.sql_type,
        format=column.format,
        relative=None if base is None else {"to": base.to, "domain": domain_identity(base.domain)},
    )


def key_identity(key: ForeignKey) -> Identity:
    """Return what of a foreign key decides which rows are kept, what they weigh and what they refer to."""
    return facts(
        child=key.child,
        columns=list(key.columns),
        parent=key.parent,
        parent_columns=list(key.parent_columns),
        max_children=key.max_children,
        max_children_per_unit=key.max_children_per_unit,
        owner=key.owner,
        optional=key.optional,
        same_unit=key.same_unit,
        becomes_null=not key.cascades,
    )


def constraints_identity(checks: Iterable[Check], dependencies: Iterable[Dependency]) -> Identity:
    """Return what rows have to keep: CHECK constraints and functional dependencies."""
    return facts(
        checks=[[check.name, check.expression] for check in checks],
        dependencies=[[list(rule.determinant), list(rule.dependent)] for rule in dependencies],
    )
