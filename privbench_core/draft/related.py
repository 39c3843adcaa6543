"""Propose checks and dependencies between two columns of a table, from their names and types, for the owner to keep.

Columns are sampled so that pairs are about as frequent as in the source, which does not keep an order: a debut may come
after the final game. A declared check or dependency is kept in every row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import permutations

from privbench_core.backends.catalogue import FoundColumn, FoundTable
from privbench_core.draft.words import words_of
from privbench_core.schema.columns import ColumnType
from privbench_core.spec.yaml_io import flow_yaml

# What comes first, and what comes after it; parts of names.
_ORDERED = (
    ("start", "end"), ("begin", "end"), ("start", "stop"), ("start", "finish"), ("from", "to"), ("first", "last"),
    ("debut", "final"), ("birth", "death"), ("born", "died"), ("birth", "debut"), ("open", "close"), ("hire", "leave"),
    ("hire", "fire"), ("birth", "hire"), ("order", "ship"), ("order", "required"), ("order", "deliver"),
    ("ship", "deliver"), ("ship", "receipt"), ("commit", "receipt"), ("created", "updated"), ("create", "update"),
    ("created", "closed"), ("creation", "closed"), ("creation", "last"), ("rental", "return"), ("admit", "discharge"),
    ("admission", "discharge"), ("check in", "check out"), ("arrival", "departure"), ("departure", "arrival"),
    ("issue", "expiry"), ("issued", "expires"), ("valid from", "valid to"), ("min", "max"), ("low", "high"),
)  # fmt: skip
_TIMES = frozenset({ColumnType.DATE, ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ})
_NUMBERS = frozenset({ColumnType.INTEGER, ColumnType.DECIMAL, ColumnType.FLOAT})
_DEPENDENT = (("city", "state"), ("city", "province"), ("state", "country"), ("province", "country"), ("zip", "city"))


def propose_checks(table: FoundTable) -> Iterator[tuple[str, str]]:
    """Yield names and expressions of checks that columns of one type probably keep.

    >>> column = lambda name: FoundColumn(name, ColumnType.DATE, "date", nullable=True)
    >>> list(propose_checks(FoundTable("player", (column("finalGame"), column("debut")))))
    [('debut_before_finalGame', 'debut <= "finalGame"')]
    """
    declared = " ".join(check.expression for check in table.checks)
    found: dict[frozenset[str], tuple[str, str]] = {}
    for first, last in permutations(table.columns, 2):
        comparable = first.type is not None and first.type is last.type and first.type in _TIMES | _NUMBERS
        known = first.name in declared and last.name in declared
        if comparable and not known and _in_order(first, last):
            expression = f"{_quoted(first.name)} <= {_quoted(last.name)}"
            found.setdefault(frozenset((first.name, last.name)), (f"{first.name}_before_{last.name}", expression))
    yield from found.values()


def propose_dependencies(table: FoundTable) -> Iterator[tuple[str, str]]:
    """Yield pairs of columns of which the first probably determines the second.

    >>> column = lambda name: FoundColumn(name, ColumnType.CATEGORY, "text", nullable=True)
    >>> list(propose_dependencies(FoundTable("shop", (column("ship_city"), column("ship_state")))))
    [('ship_city', 'ship_state')]
    """
    keys = set(table.primary_key).union(*(key.columns for key in table.foreign_keys))
    plain = [column.name for column in table.columns if column.type is ColumnType.CATEGORY and column.name not in keys]
    for city, state in _DEPENDENT:
        yield from (
            (first, last)
            for first, last in permutations(plain, 2)
            if re.sub(rf"\b{city}\b", state, words_of(first)) == words_of(last) != words_of(first)
        )


def related_lines(table: FoundTable) -> Iterator[str]:
    """Yield the proposals as commented lines of a spec."""
    checks, dependencies = list(propose_checks(table)), list(propose_dependencies(table))
    if checks:
        listed = ", ".join(flow_yaml({"name": name, "expression": text}) for name, text in checks)
        yield f"    # checks: [{listed}] # probable by their names: keep what always holds"
    if dependencies:
        listed = ", ".join(flow_yaml({"determinant": first, "dependent": last}) for first, last in dependencies)
        yield f"    # dependencies: [{listed}] # probable by their names: keep what always holds"


def _in_order(first: FoundColumn, last: FoundColumn) -> bool:
    """Return whether the names differ by a pair of words that are in order, or are such a pair with other words."""
    here, there = words_of(first.name), words_of(last.name)
    for early, late in _ORDERED:
        if not (re.search(rf"\b{early}", here) and re.search(rf"\b{late}", there)):
            continue
        same = re.sub(rf"\b{early}", late, here, count=1) == there
        # Dates are comparable whatever else they are called; numbers only if nothing else differs.
        if same or (first.type in _TIMES and not re.search(rf"\b{late}", here)):
            return True
    return False


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'
