from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core import guards
from privbench_core.errors import PublishError, SpecError
from privbench_core.privacy.budget import Budget
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.privbench import PrivBench
from privbench_core.synthesizers.steps.sampled import SampledTable
from privbench_core.validate.derived import fanout_column, integrity_frame, reference_column
from tests.helpers.databases import keyed
from tests.helpers.planted import category, draw_exactly, integer, made_exactly, owner_key, planted_pair, rows_of, texts

TOWN = Table("town", (integer("country"), Column("code", ColumnType.TEXT), category("a", 2)), ("country", "code"))


def composite() -> tuple[Schema, dict[str, pa.Table]]:
    """A parent with a key of two columns; its children's key is the owner's and a number of their own."""
    key = ForeignKey("street", ("land", "town"), "town", ("country", "code"), max_children=4, owner=True)
    columns = (integer("land"), Column("town", ColumnType.TEXT), integer("number"), category("b", 2))
    street = Table("street", columns, ("land", "town", "number"), (key,))
    rng = np.random.default_rng(0)
    n = 120
    home = np.repeat(np.arange(n), rng.integers(0, 5, n))
    country, code = np.arange(n) // 10, np.array([f"t{i % 10}" for i in range(n)])
    tables = {
        "town": rows_of(TOWN, country=country, code=code, a=texts(rng.integers(0, 2, n))),
        "street": rows_of(
            street,
            land=country[home],
            town=code[home],
            number=np.arange(len(home)),
            b=texts(rng.integers(0, 2, len(home))),
        ),
    }
    return Schema("map", (TOWN, street), "town"), tables


def assert_sound(schema: Schema, made: dict[str, pa.Table]) -> None:
    """Every table has its types, unique keys and complete references, and keeps its bounds."""
    for table in schema.tables:
        rows = made[table.name]
        assert [(f.name, f.type) for f in rows.schema] == [(f.name, f.type) for f in table.arrow_schema]
        for unique in (table.primary_key, *table.unique):
            found = rows.select(list(unique)).drop_null()
            assert found.group_by(list(unique)).aggregate([]).num_rows == found.num_rows, (table.name, unique)
        for column in table.columns:
            if not column.nullable:
                assert rows.column(column.name).null_count == 0, (table.name, column.name)
        frame = integrity_frame(schema, table, made)
        for key in table.foreign_keys:
            assert frame[reference_column(key)].all(), key.name
            if key.owner:
                assert (frame[fanout_column(key)] <= (key.max_children or 1)).all()


def test_composite_keys_are_copied_as_a_whole_and_numbered_within_the_owner():
    schema, tables = composite()
    samples = draw_exactly(schema, tables)
    made = {name: sample.table for name, sample in samples.items()}
    assert_sound(schema, made)
    numbers = made["street"].column("number").to_numpy()
    assert numbers.min() == 1
    assert numbers.max() <= 4
    places = samples["street"].parents["street.(land,town)"]
    for child, parent in (("land", "country"), ("town", "code")):
        assert (
            made["street"].column(child).to_pylist() == made["town"].column(parent).take(pa.array(places)).to_pylist()
        )


def junction() -> tuple[Schema, dict[str, pa.Table]]:
    """Which student takes which course: the key is both references."""
    student = Table("student", (integer("id"), category("a", 2)), ("id",))
    course = Table("course", (integer("id"), category("c", 2)), ("id",), public=True)
    takes = Table(
        "takes",
        (integer("student_id"), integer("course_id"), category("mark", 3)),
        ("student_id", "course_id"),
        (owner_key("takes", "student_id", "student", 5), ForeignKey("takes", ("course_id",), "course", ("id",))),
    )
    rng = np.random.default_rng(0)
    pairs = [(s, int(c)) for s in range(400) for c in rng.choice(8, rng.integers(0, 6), replace=False)]
    who, what = np.array(pairs).T
    tables = {
        "student": rows_of(student, id=np.arange(400), a=texts(rng.integers(0, 2, 400))),
        "course": rows_of(course, id=np.arange(8) + 50, c=texts(np.arange(8) % 2)),
        "takes": rows_of(takes, student_id=who, course_id=what + 50, mark=texts(rng.integers(0, 3, len(who)))),
    }
    return Schema("school", (student, course, takes), "student"), tables


def test_a_junction_table_has_no_pair_twice_and_keeps_most_rows():
    schema, tables = junction()
    made = {name: sample.table for name, sample in draw_exactly(schema, tables).items()}
    assert_sound(schema, made)
    assert 0.6 * tables["takes"].num_rows < made["takes"].num_rows <= tables["takes"].num_rows * 1.01


def test_declared_unique_columns_hold_and_nulls_do_not_clash():
    columns = (integer("id"), integer("seat", 1, 5, nullable=True), category("room", 40))
    table = Table("guest", columns, ("id",), unique=(("seat", "room"),))
    rng = np.random.default_rng(0)
    room, seat = np.repeat(np.arange(40), 5), np.tile(np.arange(1, 6), 40)
    null = rng.random(200) < 0.5
    rows = rows_of(table, id=np.arange(200), seat=pa.array(seat, mask=null), room=texts(room))
    schema = Schema("hotel", (table,), "guest")
    made = {name: sample.table for name, sample in draw_exactly(schema, {"guest": rows}).items()}
    assert_sound(schema, made)
    missing = made["guest"].column("seat").null_count
    assert missing == pytest.approx(null.sum(), abs=3)  # none of them is dropped
    assert made["guest"].num_rows > missing + 30


@pytest.mark.parametrize(("scale", "rows"), [(1.0, 60), (0.1, 6), (2.5, 150), (0.001, 1)])
def test_the_unit_table_has_the_released_number_of_rows_scaled(scale, rows):
    assert draw_exactly(*planted_pair(60), scale=scale)["parent"].table.num_rows == rows


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_scale_multiplies_every_table_and_keeps_what_holds(scale):
    schema, tables = planted_pair(600)
    made = {name: sample.table for name, sample in draw_exactly(schema, tables, scale=scale).items()}
    assert_sound(schema, made)
    for name, rows in tables.items():
        assert made[name].num_rows == pytest.approx(scale * rows.num_rows, rel=0.15)


@pytest.mark.parametrize("build", [planted_pair, composite, junction])
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(build):
    schema, tables = build()
    first, again, other = (
        {name: sample.to_artifact().to_bytes() for name, sample in draw_exactly(schema, tables, seed=seed).items()}
        for seed in (3, 3, 4)
    )
    assert first == again
    assert all(first[table.name] != other[table.name] for table in schema.private_tables)


@pytest.mark.parametrize(("build", "most"), [(composite, 8), (composite, 3), (junction, 20)])
def test_composite_keys_and_junctions_hold_over_ranges(build, most, monkeypatch):
    schema, tables = build()
    whole = {name: sample.table.num_rows for name, sample in draw_exactly(schema, tables).items()}
    monkeypatch.setattr(guards, "RANGE_ROWS", most)
    made = {key[1]: SampledTable(left) for key, left in made_exactly(schema, tables).items() if key[0] == "sample"}
    assert {name: sum(sampled.rows) for name, sampled in made.items()} == whole
    assert min(len(made[table.name].rows) for table in schema.private_tables) > 10
    assert_sound(schema, {name: sampled.whole_rows() for name, sampled in made.items()})


def test_a_chain_below_an_empty_table_is_empty():
    schema, tables = planted_pair(50)
    toy = keyed("toy", integer("child_id"), category("t", 2), keys=(owner_key("toy", "child_id", "child", 2),))
    longer = Schema("planted", (*schema.tables, toy), "parent")
    empty = {
        **tables,
        "child": tables["child"].slice(0, 0),
        "toy": rows_of(toy, id=[], child_id=[], t=pa.array([], pa.string())),
    }
    made = {name: sample.table for name, sample in draw_exactly(longer, empty).items()}
    assert made["child"].num_rows == made["toy"].num_rows == 0
    assert_sound(longer, made)


def test_a_key_type_without_room_for_the_rows_is_refused():
    table = Table("day", (Column("d", ColumnType.DATE),), ("d",))
    rows = pa.table({"d": pa.array([0], pa.date32())})
    with pytest.raises(PublishError, match=r"day\.d: a key of type date has room for"):
        draw_exactly(Schema("s", (table,), "day"), {"day": rows}, scale=1e7)


def test_an_optional_key_that_shares_a_column_with_the_primary_key_is_refused_before_anything_is_spent():
    place = Table("place", (integer("a"), integer("b")), ("a", "b"), public=True)
    key = ForeignKey("unit", ("a", "b"), "place", ("a", "b"), optional=True)
    unit = Table("unit", (integer("a"), integer("n"), integer("b", nullable=True)), ("a", "n"), (key,))
    with pytest.raises(SpecError, match=r"unit\.a: in the primary key and in the optional key unit\.\(a,b\)"):
        PrivBench().plan(Schema("s", (place, unit), "unit"), Budget(1.0), {})
