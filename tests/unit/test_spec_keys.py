"""Foreign keys in a spec: what they may refer to, which cycles can be opened, and what follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from privbench_core.privacy.relations import stability
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import Spec
from tests.helpers import specs

HEAD = """
database: d
source: data
privacy: {unit: a, delta: 1e-9, epsilons: [1], lifetime: {epsilon: 2}}
tables:
"""
A = "  a: {primary_key: id, columns: {id: integer}}\n"


def load(folder: Path, tables: str) -> Spec:
    return specs.load(folder, HEAD + tables)


def problems(folder: Path, tables: str) -> tuple[str, ...]:
    return specs.problems(folder, HEAD + tables)


def table(name: str, columns: str, keys: str, more: str = "") -> str:
    return f"  {name}: {{primary_key: id, columns: {{id: integer, {columns}}}, foreign_keys: [{keys}]{more}}}\n"


def test_a_cycle_opens_at_an_optional_key_off_the_ownership_path(tmp_path: Path) -> None:
    store = "{columns: boss, references: staff, max_children: 1, optional: true}"
    staff = "{columns: store, references: store, max_children: 9}"
    loop = A + table("store", "a: integer, boss: integer", "{columns: a, references: a, max_children: 3}, " + store)
    loop += table("staff", "store: integer", staff)
    schema = load(tmp_path, loop).schema
    assert schema.deferred_keys == {"store.boss"}
    assert [t.name for t in schema.sampling_order] == ["a", "store", "staff"]
    assert schema.table("store").column("boss").nullable
    # The staff gets to the unit only over the store itself, so the choice was clear.
    assert schema.table("store").owner_key == schema.table("store").foreign_keys[0]
    closed = loop.replace(", optional: true", "").replace("references: a, max", "references: a, owner: true, max")
    assert problems(tmp_path, closed) == (
        (
            "store: a cycle of required foreign keys (store -> staff -> store); declare store.boss optional: true"
            " (filled in last), or leave it out of the spec"
        ),
    )


def test_a_cycle_of_owners_leads_nowhere(tmp_path: Path) -> None:
    loop = A + table(
        "b",
        "a: integer, c: integer",
        "{columns: a, references: a, max_children: 1}, {columns: c, references: c, max_children: 1, owner: true}",
    )
    loop += table("c", "b: integer", "{columns: b, references: b, max_children: 1, owner: true}")
    expected = "b: the owner keys form a cycle (b -> c -> b); mark owner: true on a key that leads to the unit"
    assert expected in problems(tmp_path, loop)


def test_a_self_reference_is_optional_and_bounded(tmp_path: Path) -> None:
    boss = "{columns: boss, references: a, max_children: 4, optional: true}"
    schema = load(tmp_path, table("a", "boss: integer", boss)).schema
    assert (schema.deferred_keys, schema.table("a").owner_key) == ({"a.boss"}, None)
    assert problems(tmp_path, table("a", "boss: integer", boss.replace("max_children: 4, ", ""))) == (
        "a.boss: max_children is missing; declare the most a rows one a row may have",
    )
    assert problems(tmp_path, table("a", "boss: integer", boss.replace(", optional: true", ""))) == (
        (
            "a: refers to itself by a required key; declare a.boss optional: true (filled in last), or leave it out"
            " of the spec"
        ),
    )


def test_public_tables_may_refer_to_each_other_in_any_way(tmp_path: Path) -> None:
    public = ", public: true"
    tables = A.replace("{id: integer}}", "{id: integer, p: integer}, foreign_keys: [{columns: p, references: p}]}")
    tables += table("p", "q: integer, up: integer", "{columns: q, references: q}, {columns: up, references: p}", public)
    tables += table("q", "p: integer", "{columns: p, references: p}", public)
    schema = load(tmp_path, tables).schema
    assert {t.name for t in schema.sampling_order[:2]} == {"p", "q"}
    assert schema.deferred_keys == frozenset()


def test_the_unit_may_point_at_its_own_only_if_it_may_be_null(tmp_path: Path) -> None:
    favourite = "{columns: best, references: b, max_children: 1, optional: true}"
    tables = table("a", "best: integer", favourite) + table(
        "b", "a: integer", "{columns: a, references: a, max_children: 3}"
    )
    assert load(tmp_path, tables).schema.deferred_keys == {"a.best"}
    found = problems(tmp_path, tables.replace(", optional: true", ""))
    assert any(line.startswith("a.best: the privacy unit depends on the private table b; make b") for line in found)
    assert any(line.startswith("a: a cycle of required foreign keys (a -> b -> a)") for line in found)


def test_a_unique_key_has_one_row_per_parent(tmp_path: Path) -> None:
    detail = "  b: {primary_key: a, columns: {a: integer}, foreign_keys: [{columns: a, references: a}]}\n"
    assert load(tmp_path, A + detail).schema.table("b").foreign_keys[0].max_children == 1
    assert problems(tmp_path, A + detail.replace("references: a}", "references: a, max_children: 2}")) == (
        "b.a: max_children is 2, but the key is unique in b; write 1, or leave it out",
    )
    unique = table("b", "a: integer", "{columns: a, references: a}", ", unique: [[a]]")
    assert load(tmp_path, A + unique).schema.table("b").foreign_keys[0].max_children == 1


def test_keys_may_refer_to_any_unique_set(tmp_path: Path) -> None:
    parent = "  a: {primary_key: id, columns: {id: integer, x: text, y: integer}, unique: [[x, y]]}\n".replace(
        "y: integer}", "y: {type: integer, domain: learn}}"
    )
    to_unique = "{columns: [v, w], references: {table: a, columns: [y, x]}, max_children: 2}"
    child = table("b", "v: integer, w: text", to_unique)
    key = load(tmp_path, parent + child).schema.table("b").foreign_keys[0]
    assert (key.columns, key.parent_columns) == (("w", "v"), ("x", "y"))  # in the order of the unique set
    assert problems(tmp_path, parent.replace(", unique: [[x, y]]", "") + child) == (
        (
            "b.(v,w): refers to a(y, x), which is neither its primary key nor declared unique; refer to (id), or add"
            " unique: [[y, x]] to a"
        ),
    )


@pytest.mark.parametrize(
    ("here", "there", "names"),
    [
        ("uuid", "text", "b.a: type uuid, but a.id is text; give both the same type"),
        ("timestamp", "timestamptz", "b.a: type timestamp, but a.id is timestamptz; give both the same type"),
        ("integer", "uuid", "b.a: type integer, but a.id is uuid; give both the same type"),
    ],
)
def test_types_agree_along_a_key(tmp_path: Path, here: str, there: str, names: str) -> None:
    tables = A.replace("id: integer", f"id: {there}") + table(
        "b", f"a: {here}", "{columns: a, references: a, max_children: 2}"
    )
    assert problems(tmp_path, tables) == (names,)


def test_an_owner_may_be_missing(tmp_path: Path) -> None:
    tables = A + table("b", "a: integer", "{columns: a, references: a, max_children: 2, optional: true}")
    key = load(tmp_path, tables).schema.table("b").owner_key
    assert key is not None
    assert key.optional
    two = tables.replace("}]}", "}, {columns: a2, references: a, max_children: 1}]}").replace(
        "a: integer}", "a: integer, a2: integer}"
    )
    (found,) = problems(tmp_path, two)
    assert found.startswith("b: several paths lead to the privacy unit; mark one of b.a, b.a2 with owner: true")


def test_names_of_keys_tell_them_apart(tmp_path: Path) -> None:
    key = "{columns: %s, references: a, max_children: 2}"
    tables = A + table("b", '"c.d": integer', key % '"c.d"') + table("b.c", "d: integer", key % "d")
    assert problems(tmp_path, tables) == ("b.c.d: two foreign keys of the same name; rename a column",)


def test_a_key_that_stays_inside_of_a_unit_needs_no_bound(tmp_path: Path) -> None:
    inside = "{columns: b, references: b, optional: true, same_unit: true}"
    tables = A + table("b", "a: integer", "{columns: a, references: a, max_children: 3}")
    tables += table(
        "c", "a: integer, b: integer", "{columns: a, references: a, max_children: 2, owner: true}, " + inside
    )
    spec = load(tmp_path, tables)
    assert [key.same_unit for key in spec.schema.table("c").foreign_keys] == [False, True]
    assert spec.schema.table("c").foreign_keys[1].max_children is None
    assert spec.schema.tables_of_units == {"a", "b", "c"}
    (tmp_path / "again.yaml").write_text(dump_spec(spec), encoding="utf-8")
    assert load_spec(tmp_path / "again.yaml").schema == spec.schema
    assert stability(spec.schema, "c") == 1
    ordinary = load(tmp_path, tables.replace("same_unit: true", "max_children: 4")).schema
    assert stability(ordinary, "c") == 1 + 2 * 3 * 4
    assert ordinary.tables_of_units == frozenset()
    assert problems(tmp_path, tables.replace(", same_unit: true", "")) == (
        "c.b: max_children is missing; declare the most c rows one b row may have",
    )


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        (
            A + table("b", "a: integer", "{columns: a, references: a, max_children: 3, same_unit: true}"),
            "b.a: same_unit: true on the owner key, where it always holds; remove it",
        ),
        (
            table("a", "p: integer", "{columns: p, references: p, same_unit: true}")
            + "  p: {public: true, primary_key: id, columns: {id: integer}}\n",
            "a.p: same_unit: true on a key to a public table, whose rows belong to no unit; remove it",
        ),
        (
            table("a", "boss: integer", "{columns: boss, references: a, optional: true, same_unit: true}"),
            "a.boss: same_unit: true between rows of a, each a unit of its own; remove it",
        ),
    ],
    ids=["owner", "public", "unit"],
)
def test_where_staying_inside_of_a_unit_means_nothing(tmp_path: Path, tables: str, problem: str) -> None:
    assert problems(tmp_path, tables) == (problem,)
