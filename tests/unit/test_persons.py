"""Generated names of one person agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from faker.providers.person import en_US as en_us

from privbench_core.columns.person_names import agreeing_names, gendered_names
from privbench_core.columns.surrogates import draw_faker_text
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


@pytest.mark.parametrize("genders", [("F", "M", None, "X"), ("female", "male", None, "x"), ("0", "1", None, "2")])
def test_first_names_suit_the_gender_of_the_row(genders: tuple[str]) -> None:
    rows = {"fname": ["Ann", "Bob", "Cat", None], "lname": ["Lee"] * 4, "full": ["Ann Lee", "Bob Lee", "Cat Lee", None]}
    columns = {name: pa.array(values, pa.string()) for name, values in (rows | {"Sex": genders}).items()}
    table = replace(PERSON, columns=(*PERSON.columns, Column("Sex", ColumnType.CATEGORY)))
    made = gendered_names(table, columns, {"mname"}, np.random.default_rng(0))
    if genders[0] == "0":
        assert not made
        return
    people = en_us.Provider
    for name, names in made.items():
        first = [None if text is None else text.split()[0] for text in names.to_pylist()]
        assert first[0] in people.first_names_female, name
        assert first[1] in people.first_names_male, name
        assert first[2:] == ["Cat", None]
    assert all(text is None or text.endswith(" Lee") for text in made["full"].to_pylist())


def test_full_names_have_no_titles() -> None:
    names = draw_faker_text("name", 200, 60, np.random.default_rng(0))
    assert all(len(name.split()) == 2 and "." not in name for name in names)
