"""Draw specs at random, as a mapping that is written and parsed like a file: whatever the parser accepts is audited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from privbench_core.errors import SpecError
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.spec.yaml_io import write_yaml

UNDECIDED = 1_000_000
"""A bound that is declared only: the rows that are drawn say what holds."""
_NAMES = ("unit", "a", "b", "c", "d")
_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "integer": {"type": "integer", "domain": {"min": 0, "max": 3}},
    "listed": {"type": "integer", "domain": {"values": [-1, 0, 7]}},
    "category": {"type": "category", "domain": {"values": ["u", "v", "w"]}},
    "learned": {"type": "category", "domain": "learn"},
    "boolean": {"type": "boolean"},
    "date": {"type": "date", "domain": {"min": "2000-01-01", "max": "2000-01-06", "cells": 3}},
    "decimal": {"type": "decimal", "precision": 6, "scale": 2, "domain": {"min": 0, "max": 5, "cells": 3}},
    "range": {"type": "float", "domain": "learn"},
    "text": {"type": "text", "max_length": 8},
    "documents": {"type": "json", "domain": "learn"},
}
_KEYS: dict[str, dict[str, Any]] = {
    "integer": {"type": "integer"},
    "text": {"type": "text", "max_length": 12},
    "date": {"type": "date"},
}


@dataclass
class _Table:
    """A table while it is drawn: columns as the file has them, and the sets of columns that keys may refer to."""

    name: str
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    primary: list[str] = field(default_factory=list)
    unique: list[list[str]] = field(default_factory=list)
    keys: list[dict[str, Any]] = field(default_factory=list)
    public: bool = False

    def targets(self) -> list[list[str]]:
        """Sets of columns that keys may refer to: of key types."""
        return [[*group] for group in (self.primary, *self.unique) if group]

    def content(self) -> dict[str, Any]:
        found: dict[str, Any] = {"primary_key": self.primary} if self.primary else {"row_id": "generated"}
        if self.unique:
            found["unique"] = self.unique
        if self.keys:
            found["foreign_keys"] = [self._bounded(key) for key in self.keys]
        return found | {"columns": self.columns}

    def _bounded(self, key: Mapping[str, Any]) -> dict[str, Any]:
        """A key that is unique in its table has one row per parent, and no bound is written."""
        single = any(group and set(group) <= set(key["columns"]) for group in (self.primary, *self.unique))
        return {name: value for name, value in key.items() if not (single and name.startswith("max_children"))}


def draw_spec(rng: np.random.Generator) -> dict[str, Any]:
    """Return the content of a spec file; about half of them are refused, by the rules under audit."""
    tables: list[_Table] = []
    names = _NAMES[: int(rng.integers(2, len(_NAMES) + 1))]
    for place, name in enumerate(names):
        tables.append(_table(rng, name, tables, public=place > 0 and rng.random() < 0.12))
    for table in tables[:-1]:  # keys to later tables open cycles
        if rng.random() < 0.2:
            later = tables[int(rng.integers(tables.index(table) + 1, len(tables)))]
            _add_key(rng, table, later, owner=False, optional=True)
    budget = {"delta": 1e-6, "epsilons": [1], "lifetime": {"epsilon": 9, "delta": 1e-5}}
    return {
        "database": "audit",
        "source": ".",
        "privacy": {"unit": "unit", "public": [table.name for table in tables if table.public], **budget},
        "tables": {table.name: table.content() for table in tables},
    }


def accepted(content: Mapping[str, Any], path: Path) -> Spec | None:
    """Return the spec of a file with this content, written to ``path``; None if it is refused."""
    path.write_text(write_yaml(content), encoding="utf-8")
    try:
        return load_spec(path)
    except SpecError:
        return None


def _table(rng: np.random.Generator, name: str, before: list[_Table], *, public: bool) -> _Table:
    table = _Table(name, public=public)
    others = [other for other in before if other.public or not public]
    private = [other for other in others if not other.public and other.targets()]
    if private and not public:
        _add_key(rng, table, private[int(rng.integers(len(private)))], owner=True, optional=rng.random() < 0.2)
    _add_primary(rng, table)
    if rng.random() < 0.35:
        kind = str(rng.choice([*_KEYS]))
        table.columns["code"] = {**_KEYS[kind], "nullable": bool(rng.random() < 0.5)}
        table.columns["code"] |= {"integer": {"domain": {"min": 0, "max": 99}}}.get(kind, {})
        table.columns["code"] |= {"date": {"domain": {"min": "2000-01-01", "max": "2000-03-01"}}}.get(kind, {})
        table.unique.append(["code"])
    for _ in range(int(rng.integers(0, 3))):
        near = [other for other in (*others, table) if other.targets() and other.public == (public or other.public)]
        if near:
            other = near[int(rng.integers(len(near)))]
            _add_key(rng, table, other, owner=False, optional=other is table or rng.random() < 0.6)
    kinds = rng.choice([*_ATTRIBUTES], int(rng.integers(1, 3)), replace=False)
    for place, kind in enumerate(map(str, kinds)):
        table.columns[f"x{place}"] = {**_ATTRIBUTES[kind], "nullable": bool(rng.random() < 0.3)}
    _add_difference(rng, table, before)
    return table


def _add_primary(rng: np.random.Generator, table: _Table) -> None:
    """Give a table a primary key, or none."""
    owner = table.keys[0]["columns"] if table.keys else []
    never_null = [name for name in owner if not table.columns[name].get("nullable")]
    way = rng.random()
    if way < 0.2:
        return
    if way < 0.33 and never_null and len(never_null) == len(owner):
        table.columns["line"] = dict(_KEYS["integer"])
        table.primary = [*owner, "line"]
    elif way < 0.4 and never_null and len(never_null) == len(owner):
        table.primary = [*owner]  # a row of a parent at most
    elif way < 0.48:
        table.columns["kind"] = {"type": "category", "domain": {"values": ["u", "v", "w"]}}
        table.columns["id"] = dict(_KEYS["integer"])
        table.primary = ["kind", "id"]
    else:
        table.columns["id"] = dict(_KEYS[str(rng.choice([*_KEYS], p=[0.7, 0.2, 0.1]))])
        table.primary = ["id"]


def _add_key(rng: np.random.Generator, table: _Table, parent: _Table, *, owner: bool, optional: bool) -> None:
    """Add a foreign key, with columns of its own or some that other keys have."""
    targets = parent.targets()
    if not targets:
        return
    target = targets[int(rng.integers(len(targets)))]
    columns: list[str] = []
    for wanted in target:
        kind = {name: value for name, value in parent.columns[wanted].items() if name not in {"nullable", "domain"}}
        same = [name for name, made in table.columns.items() if made["type"] == kind["type"] and name not in columns]
        if same and rng.random() < 0.15:
            columns.append(str(rng.choice(same)))
            table.columns[columns[-1]].pop("domain", None)
            continue
        name = f"k{len(table.columns)}_{wanted}"[:20]
        table.columns[name] = kind | {"nullable": bool(optional and rng.random() < 0.85)}
        columns.append(name)
    key: dict[str, Any] = {"columns": columns, "references": {"table": parent.name, "columns": target}}
    key |= {"optional": True} if optional else {}
    key |= {"owner": True, "max_children": int(rng.integers(1, 4))} if owner else {}
    if not owner and not parent.public:
        inside = rng.random() < 0.35 and (table.name, parent.name) != ("unit", "unit")
        key |= {"same_unit": True} if inside else {"max_children": UNDECIDED}
        removed = rng.choice(["", "cascade", "set null"], p=[0.4, 0.2, 0.4]) if parent is not table else "set null"
        key |= {"on_unit_removed": str(removed)} if removed else {}
        if "same_unit" not in key and parent.name != "unit" and rng.random() < 0.3:
            key["max_children_per_unit"] = UNDECIDED
    key |= {"on_orphan": "drop"} if rng.random() < 0.25 else {}
    table.keys.append(key)
    if rng.random() < 0.2:
        table.unique.append(columns)


def _add_difference(rng: np.random.Generator, table: _Table, before: list[_Table]) -> None:
    """Have a date of some tables relative to one of the same table, or of the owner's."""
    if table.public or rng.random() < 0.6:
        return
    bases = [name for name, made in table.columns.items() if name.startswith("x") and made["type"] == "date"]
    if table.keys and table.keys[0].get("owner") and not table.keys[0].get("optional"):
        above = next(other for other in before if other.name == table.keys[0]["references"]["table"])
        dates = (name for name, made in above.columns.items() if name.startswith("x") and made["type"] == "date")
        bases += [f"{above.name}.{name}" for name in dates]
    if bases:
        base = str(rng.choice(bases))
        domain = {"min": -1, "max": 3}
        table.columns["later"] = {"type": "date", "relative_to": base, "domain": domain, "nullable": True}
