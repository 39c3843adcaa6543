"""Generated names of one person agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.surrogates import agreeing_names
from privbench_core.schema.columns import Column, ColumnType, Pattern
from privbench_core.schema.tables import Schema, Table
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import draw_exactly, rows_of

PROVIDERS = {"fname": "first_name", "mname": "first_name", "lname": "last_name", "full": "name", "mail": "email"}
PERSON = Table(
    "person",
    (
        Column("id", ColumnType.INTEGER),
        *(Column(name, ColumnType.TEXT, Pattern(provider=each), nullable=True) for name, each in PROVIDERS.items()),
    ),
    ("id",),
)


@pytest.mark.parametrize("unique", [(), (("mail",),)])
def test_the_full_name_and_the_address_are_those_of_the_first_and_the_last_name(unique: tuple[tuple[str]]) -> None:
    table, n = replace(PERSON, unique=unique), 500
    texts = {
        name: pa.array([None if row % 5 == 0 and name == "mail" else f"x{row}" for row in range(n)])
        for name in PROVIDERS
    }
    source = {"person": rows_of(table, id=np.arange(n), **texts)}
    made = draw_exactly(Schema("persons", (table,), "person"), source, noise=SeededNoise(0))["person"].table
    rows = made.select(list(PROVIDERS)).to_pylist()
    assert all(row["full"] == f"{row['fname']} {row['lname']}" for row in rows)
    mails = [row["mail"] for row in rows if row["mail"] is not None]
    assert 0 < len(mails) == len(set(mails)) < len(rows)
    like = [row["mail"].startswith(f"{row['fname']}.{row['lname']}".lower()) for row in rows if row["mail"]]
    assert all(like) if not unique else np.mean(like) < 0.1


def test_nobody_without_a_name_gets_one_and_lengths_are_kept() -> None:
    columns = {
        "fname": pa.array(["Ann", None, "Ann"]),
        "lname": pa.array(["Lee", "Roe", "Lee"]),
        "full": pa.array(["x", "y", None]),
        "mail": pa.array(["a@b.org", "c@b.org", "d@b.org"]),
    }
    short = tuple(replace(column, max_length=12) if column.name == "mail" else column for column in PERSON.columns)
    made = agreeing_names(replace(PERSON, columns=short), columns)
    assert made["full"].to_pylist() == ["Ann Lee", "y", None]
    assert made["mail"].to_pylist() == ["ann.le@b.org", "c@b.org", "ann.l2@b.org"]
    assert not agreeing_names(PERSON, columns | {"fname": columns["fname"]}, {"full", "mail"})
