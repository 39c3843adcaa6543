"""A table checked range by range has the results of the whole table, also where only two ranges together are wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.schema.constraints import ForeignKey
from privbench_core.validate.ranges import check_ranges, check_whole
from tests.helpers.planted import integer, planted_pair

SCHEMA, TABLES = planted_pair(60)
CUTS = (0, 20, 40, 60)


@dataclass(frozen=True)
class Ranges:
    """Children of each third of the parents."""

    tables: dict[str, pa.Table]
    begins: tuple[int, ...]

    def __call__(self, number: int) -> dict[str, pa.Table]:
        start, stop = self.begins[number : number + 2]
        return {**self.tables, "child": self.tables["child"].slice(start, stop - start)}

    def whole(self) -> dict[str, pa.Table]:
        return self.tables


def ranges_of(child: pa.Table) -> Ranges:
    parents = TABLES["child"].column("parent_id").to_pylist()
    begins = [sum(parent - 7 < cut for parent in parents) for cut in CUTS]
    return Ranges({**TABLES, "child": child}, tuple(begins))


def outcomes(child: pa.Table) -> tuple[list[Any], list[Any]]:
    rows = ranges_of(child)
    table = SCHEMA.table("child")
    return check_ranges(SCHEMA, table, 3, rows, rows.whole, 1), check_whole(SCHEMA, table, rows.whole())


def changed(name: str, row: int, value: int) -> pa.Table:
    child = TABLES["child"]
    values = child.column(name).to_pylist()
    values[row] = value
    return child.set_column(child.column_names.index(name), child.schema.field(name), pa.array(values, pa.int64()))


def test_sound_rows_have_the_results_of_the_whole_table_which_is_not_read():
    rows = ranges_of(TABLES["child"])
    table = SCHEMA.table("child")
    assert check_ranges(SCHEMA, table, 3, rows, _never, 1) == check_whole(SCHEMA, table, rows.whole())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", 1000),  # the key of a row in the first range
        ("x", 99),  # beyond its domain
        ("parent_id", 5),  # nobody
    ],
)
def test_what_is_wrong_is_found_and_counted_as_in_the_whole(name: str, value: int):
    found, expected = outcomes(changed(name, -1, value))
    assert found == expected
    assert sum(not result.success for result in found) == 1


def test_children_of_one_owner_in_two_ranges_are_counted_together():
    parents = TABLES["child"].column("parent_id").to_pylist()
    full = next(parent for parent in parents if parents.count(parent) == 5)
    row = len(parents) - 1 if full - 7 < CUTS[2] else 0
    found, expected = outcomes(changed("parent_id", row, full))
    assert found == expected
    assert [result.column for result in found if not result.success] == ["parent_id rows of the same parent"]


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
def test_rows_of_different_ranges_that_refer_to_one_parent_are_added_up(unique: bool, wrong: bool):
    """Each range alone keeps the bound; the whole table is not read."""
    child, rows = SCHEMA.table("child"), TABLES["child"].num_rows
    key = ForeignKey("child", ("other",), "parent", ("id",), max_children=3, optional=True)
    child = replace(
        child,
        columns=(*child.columns, integer("other", nullable=True)),
        foreign_keys=(*child.foreign_keys, key),
        unique=(("other",),) if unique else (),
    )
    numbers = np.arange(rows) // (1 if unique else 3) % 60 + 7
    filled = np.arange(rows) < (60 if unique else 180)
    if wrong:
        numbers[rows - 1], filled[rows - 1] = 7, True  # four of the first parent, or two
    other = pa.array(numbers, mask=~filled)
    schema = replace(SCHEMA, tables=(SCHEMA.table("parent"), child))
    found = ranges_of(TABLES["child"].append_column("other", other))
    results = check_ranges(schema, child, 3, found, _never, 1)
    assert results == check_whole(schema, child, found.whole())
    assert sum(not result.success for result in results) == int(wrong)


def _never() -> dict[str, pa.Table]:
    raise AssertionError
