"""A check that no value of the declared domains can meet is found in the plan, before anything is paid for."""

from __future__ import annotations

import pytest

from privbench_core.schema.columns import Column, ColumnType, Domain, Learn, Range, Values
from privbench_core.schema.constraints import Check
from privbench_core.schema.tables import Table
from privbench_core.synthesizers.steps.assemble import impossible_checks


def table(check: str, **domains: Domain) -> Table:
    kinds = {Range: ColumnType.INTEGER, Learn: ColumnType.INTEGER, Values: ColumnType.CATEGORY}
    columns = [Column(name, kinds[type(domain)], domain) for name, domain in domains.items()]
    return Table("person", (Column("id", ColumnType.INTEGER), *columns), ("id",), checks=(Check("c", check),))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (
            table("age >= 130", age=Range(0, 120)),
            "age is declared to be at most 120, but the check requires 130 or more",
        ),
        (
            table("age > 0 AND age < -5", age=Range(0, 120)),
            "age is declared to be at least 0, but the check requires -6",
        ),
        (
            table("kind IN ('c', 'd')", kind=Values(("a", "b"))),
            "none of the declared values of kind is in the list of the check",
        ),
        (table("kind = 'c' OR kind = 'd'", kind=Values(("a", "b"))), "none of the declared values of kind is in the l"),
        (table("first <= last", first=Range(10, 20), last=Range(1, 5)), "first is declared to be at least 10, and"),
        (table("last > first", first=Range(10, 20), last=Range(1, 5)), "first is declared to be at least 10, and"),
    ],
)
def test_what_can_never_hold_is_named(found: Table, reason: str) -> None:
    (said,) = impossible_checks(found)
    assert said.startswith(f"person: the check c can never hold: {reason}")


@pytest.mark.parametrize(
    "found",
    [
        table("age >= 120", age=Range(0, 120)),
        table("age >= 130 OR age < 5", age=Range(0, 120)),
        table("age >= 130", age=Learn()),
        table("kind IN ('b', 'c')", kind=Values(("a", "b"))),
        table("first <= last", first=Range(10, 20), last=Range(1, 10)),
        table("length(kind) > 3", kind=Values(("a", "b"))),
    ],
)
def test_what_may_hold_passes(found: Table) -> None:
    assert list(impossible_checks(found)) == []
