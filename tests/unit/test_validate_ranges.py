"""A table checked range by range has the results of the whole table, also where only two ranges together are wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from privbench_core.validate.ranges import check_ranges, check_whole
from tests.helpers.planted import planted_pair

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

    def never() -> dict[str, pa.Table]:
        raise AssertionError

    table = SCHEMA.table("child")
    assert check_ranges(SCHEMA, table, 3, rows, never, 1) == check_whole(SCHEMA, table, rows.whole())


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
