"""Lists that begin with the values of public rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from privbench_core.guards import MAX_PUBLIC_CODES
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.steps.profile import with_public_domains

ID, TEXT, LIST = ColumnType.INTEGER, ColumnType.TEXT, ColumnType.CATEGORY


def names(column: str, *, refers: bool = True, cities: int = 3) -> tuple[str, ...]:
    """Return with which values the list of a column of customers begins."""
    columns = (Column("id", ID), Column("sales_city", TEXT), Column("name", TEXT), Column("seal", ColumnType.BYTES))
    region = Table("region", columns, ("id",), public=True)
    keys = (ForeignKey("customer", ("region",), "region", ("id",), optional=True),) if refers else ()
    customer = Table(
        "customer", (Column("id", ID), Column("region", ID), Column(column, LIST, Learn())), ("id",), foreign_keys=keys
    )
    rows = pa.table({
        "id": range(cities), "sales_city": [f"c{place}" for place in range(cities)], "name": ["North"] * cities,
        "seal": [b"\xff"] * cities,
    })  # fmt: skip
    known = with_public_domains(Schema("shop", (region, customer), "customer"), customer, {"region": rows})
    return known.column(column).public_names


def test_a_list_begins_with_what_rows_that_are_referred_to_have_in_a_column_that_is_called_so() -> None:
    assert names("city") == names("CITY") == ("c0", "c1", "c2")


@pytest.mark.parametrize(
    ("column", "others"),
    [("name", {}), ("town", {}), ("seal", {}), ("city", {"refers": False}), ("city", {"cities": MAX_PUBLIC_CODES + 1})],
)
def test_it_does_not_where_names_say_too_little_or_values_are_many(column: str, others: dict[str, int]) -> None:
    assert names(column, **others) == ()
