"""What no database takes is refused by `plan`, and before a run buys anything."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Never

import pytest

from privbench_core.backends.duckdb import duckdb_schema
from privbench_core.errors import PublishError, SpecError
from privbench_core.publishing import dry_load
from privbench_core.publishing.dry_load import refuse_unloadable
from privbench_core.schema.columns import Column, ColumnType, Generated, Learn
from privbench_core.schema.constraints import Check, Index
from privbench_core.schema.tables import Schema, Table, View
from tests.helpers.drafts import call
from tests.helpers.planted import integer
from tests.helpers.postgres import new_database

TEXT = Column("words", ColumnType.TEXT, max_length=9)
TABLE = Table(
    "film",
    (integer("id"), TEXT, Column("doc", ColumnType.JSON, sql_type="jsonb")),
    ("id",),
    checks=(Check("odd", "is_odd(id)"), Check("even", "id % 2 = 0")),
    indexes=(Index("found", ("words",), "gist (words)"), Index("in_doc", ("doc",), "gin (doc)")),
    generated=(Generated("more", "integer", "id + 1"), Generated("lost", "integer", "lower_of(words)")),
)
REFUSED = 'data type text has no default operator class for access method "gist"'


def problems_of(*tables: Table, views: tuple[View, ...] = ()) -> list[str]:
    with pytest.raises(SpecError) as caught:
        refuse_unloadable(Schema("s", tables, "film", views=views))
    return [line.partition(". Remove it")[0] for line in caught.value.problems]


def test_what_a_server_refuses_is_named_part_by_part(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimpleNamespace(url=new_database(postgres, "dry"))
    monkeypatch.setattr(dry_load, "temporary_postgres", lambda _: nullcontext(server))
    kept = replace(TABLE, name="kept", checks=TABLE.checks[1:], generated=TABLE.generated[:1])
    assert problems_of(TABLE, kept) == [
        "film: PostgreSQL refuses the check odd: function is_odd(bigint) does not exist",
        "film: PostgreSQL refuses the computed column lost: function lower_of(text) does not exist",
        f"film: PostgreSQL refuses the index found: {REFUSED}",
        f"kept: PostgreSQL refuses the index found: {REFUSED}",
    ]
    sound = replace(TABLE, checks=TABLE.checks[1:], generated=TABLE.generated[:1], indexes=TABLE.indexes[1:])  # type: ignore[index]
    views = (View("all_words", "SELECT words, more FROM film"), View("lost", "SELECT gone FROM all_words"))
    assert problems_of(sound, views=views) == ['lost: PostgreSQL refuses the view: column "gone" does not exist']
    refuse_unloadable(Schema("s", (sound,), "film", views=views[:1]))


def test_an_index_that_no_type_of_the_bundle_fits_costs_nothing(
    town_spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no embedded server, the operator classes that are known say what cannot be."""

    def none(_: object) -> Never:
        raise PublishError("there is no embedded PostgreSQL")

    monkeypatch.setattr(dry_load, "temporary_postgres", none)
    text = town_spec.read_text(encoding="utf-8")
    index = "  household:\n    indexes: [{name: by_rooms, columns: rooms, using: gist (rooms)}]\n"
    town_spec.write_text(text.replace("  household:\n", index, 1), encoding="utf-8")
    for given in (("plan", town_spec), ("run", town_spec, "--epsilon", 0.8, "--out", town_spec.parent / "bundle")):
        result = call(*given)
        assert result.exit_code == 1
        assert "household: PostgreSQL has no operator class of the index by_rooms for rooms, which is" in result.stderr
    assert "nothing is spent" in call("ledger", town_spec).stdout
    assert problems_of(TABLE) == [
        "film: PostgreSQL has no operator class of the index found for words, which is text in the bundle"
    ]


def test_tables_that_are_the_same_to_duckdb_are_found_before_anything_is_paid() -> None:
    tables = tuple(Table(name, (integer("id"),), ("id",)) for name in ("film", "Film"))
    with pytest.raises(SpecError, match=r"DuckDB refuses the tables of the bundle: .*Film"):
        refuse_unloadable(Schema("s", tables, "film"))


def test_an_index_that_duckdb_has_no_key_for_is_left_out_there() -> None:
    tags = Column("tags", ColumnType.JSON, Learn(), sql_type="text[]")
    table = Table(
        "film", (integer("id"), tags), ("id",), indexes=(Index("by_id", ("id",)), Index("by_tags", ("tags",)))
    )
    made = duckdb_schema(Schema("s", (table,), "film"))
    assert made.left_out == ("film: the index by_tags, of a kind that DuckDB does not have",)
    assert ["by_id" in statement for statement in made.after] == [True]
