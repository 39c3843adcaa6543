"""Foreign keys in a spec: what they may refer to, which cycles can be opened, and what follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from privbench_core.privacy.relations import reference_moves, stability
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.spec.model import Spec
from tests.helpers import specs

HEAD = """
database: d
source: data
privacy: {unit: a, delta: 1e-9, epsilons: [1], lifetime: {epsilon: 2}}
tables:
"""
A = "  a: {primary_key: id, columns: {id: integer}}\n"


PUBLIC = "  p: {public: true, primary_key: id, columns: {id: integer}}\n"


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
    (problem,) = problems(tmp_path, closed)
    assert problem == (
        "store: a cycle of required foreign keys (store -> staff -> store); declare store.boss optional: true"
        " (filled in last), or leave it out of the spec"
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
    schema = load(tmp_path, table("a", "boss: integer", BOSS)).schema
    assert (schema.deferred_keys, schema.table("a").owner_key) == ({"a.boss"}, None)


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
    unique = table("b", "a: integer", "{columns: a, references: a}", ", unique: [[a]]")
    for child in (DETAIL, unique):
        assert load(tmp_path, A + child).schema.table("b").foreign_keys[0].max_children == 1


def test_keys_may_refer_to_any_unique_set(tmp_path: Path) -> None:
    key = load(tmp_path, PARENT + CHILD).schema.table("b").foreign_keys[0]
    assert (key.columns, key.parent_columns) == (("w", "v"), ("x", "y"))  # in the order of the unique set


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
    assert stability(spec.schema, "c") == 1
    ordinary = load(tmp_path, tables.replace("same_unit: true", "max_children: 4, on_unit_removed: cascade")).schema
    assert stability(ordinary, "c") == 1 + 2 * 3 * 4
    assert ordinary.tables_of_units == frozenset()
    assert problems(tmp_path, tables.replace(", same_unit: true", "")) == (
        "c.b: max_children is missing; declare the most c rows one b row may have",
    )


EDITED = A + table(
    "post",
    "a: integer, editor: integer",
    "{columns: a, references: a, max_children: 3, owner: true},"
    " {columns: editor, references: a, max_children: 9, optional: true}",
)
OPTIONAL = "optional: true"
OWNED = "{columns: a, references: a, max_children: 3, owner: true}"
LETS_GO = "max_children: 9, on_unit_removed: set null}"
REQUIRED = EDITED.replace(OPTIONAL, "on_unit_removed: set null")


def editor_of(spec: Spec) -> ForeignKey:
    """The optional key of `EDITED`."""
    return spec.schema.table("post").foreign_keys[1]


@pytest.mark.parametrize(
    ("more", "cascades", "declared"),
    [
        ("", False, None),
        (", on_unit_removed: set null", False, OnUnitRemoved.SET_NULL),
        (", on_unit_removed: cascade", True, OnUnitRemoved.CASCADE),
        (", actions: on delete cascade", True, OnUnitRemoved.CASCADE),
        (", actions: ON DELETE SET NULL", False, None),
        (", actions: ON DELETE NO ACTION DEFERRABLE", False, None),
        (", on_unit_removed: set null, actions: ON DELETE CASCADE", False, OnUnitRemoved.SET_NULL),
    ],
)
def test_optional_keys_let_go_unless_they_are_said_to_cascade(
    tmp_path: Path, more: str, cascades: bool, declared: OnUnitRemoved | None
) -> None:
    spec = load(tmp_path, EDITED.replace(OPTIONAL, OPTIONAL + more))
    key = editor_of(spec)
    assert (key.cascades, key.on_unit_removed) == (cascades, declared)
    assert stability(spec.schema, "post") == (1 + 2 * 9 if cascades else 1)
    assert spec.schema.deferred_keys == frozenset()


def test_the_clause_of_the_source_does_not_cascade_where_rows_would_go_with_themselves(tmp_path: Path) -> None:
    """A tree of comments, deleted from the root down: the reference to a removed comment becomes NULL here."""
    up = "{columns: up, references: a, max_children: 4, optional: true, actions: ON DELETE CASCADE}"
    (key,) = load(tmp_path, table("a", "up: integer", up)).schema.table("a").foreign_keys
    assert key.on_unit_removed is OnUnitRemoved.SET_NULL
    declared = table("a", "up: integer", up.replace("actions: ON DELETE", "on_unit_removed:").lower())
    (problem,) = problems(tmp_path, declared)
    assert problem == "a: a cycle of keys that cascade (a -> a); declare on_unit_removed: set null for a.up"


def test_a_cycle_opens_at_a_key_that_does_not_cascade(tmp_path: Path) -> None:
    """Though the other one is optional as well, and comes first."""
    first = "{columns: y, references: c, max_children: 2, optional: true, on_unit_removed: cascade}"
    loop = A + table("b", "a: integer, y: integer", "{columns: a, references: a, max_children: 3}, " + first)
    loop += table(
        "c",
        "a: integer, x: integer",
        "{columns: a, references: a, max_children: 3, owner: true},"
        " {columns: x, references: b, max_children: 2, optional: true}",
    )
    schema = load(
        tmp_path, loop.replace("max_children: 3}, {columns: y", "max_children: 3, owner: true}, {columns: y")
    ).schema
    assert schema.deferred_keys == {"c.x"}
    assert (stability(schema, "b"), stability(schema, "c")) == (1 + 2 * 3 * 2, 1)


def test_a_required_key_may_let_go(tmp_path: Path) -> None:
    """The row stays when what it refers to goes, and what that was is no longer known."""
    spec = load(tmp_path, REQUIRED)
    key = editor_of(spec)
    assert (key.optional, key.cascades, key.may_be_empty) == (False, False, True)
    assert (stability(spec.schema, "post"), reference_moves(spec.schema, key)) == (1, 2 * 9)
    assert spec.schema.deferred_keys == frozenset()
    plain = editor_of(load(tmp_path, EDITED.replace(", " + OPTIONAL, "")))
    assert (plain.cascades, plain.may_be_empty) == (True, False)


LINKED = A + table("b", "a: integer", "{columns: a, references: a, max_children: 20}")
LINKED += table(
    "c",
    "b: integer, d: integer",
    "{columns: b, references: b, max_children: 5, owner: true},"
    " {columns: d, references: b, max_children: 10, max_children_per_unit: 30}",
)


@pytest.mark.parametrize(("old", "of_a_row"), [("", 10), ("max_children: 10, ", 30)])
def test_a_bound_for_whole_units_stands_for_that_of_single_rows_where_there_is_none(
    tmp_path: Path, old: str, of_a_row: int
) -> None:
    spec = load(tmp_path, LINKED.replace(old, ""))
    key = spec.schema.table("c").foreign_keys[1]
    assert (key.max_children, key.max_children_per_unit, stability(spec.schema, "c")) == (of_a_row, 30, 1 + 2 * 30)


SEASON = A + (
    "  b: {primary_key: [a, season, no], columns: {a: integer, season: {type: integer, domain: {min: 1990, max: 2020}},"
    " no: integer}, foreign_keys: [{columns: a, references: a, max_children: 30}]}\n"
)


def test_a_key_column_with_a_domain_is_an_attribute(tmp_path: Path) -> None:
    spec = load(tmp_path, SEASON)
    b = spec.schema.table("b")
    assert [column.name for column in b.attributes] == ["season"]
    assert b.key_columns == {"a", "no"}


def test_the_pattern_of_a_text_key_leaves_it_a_key(tmp_path: Path) -> None:
    a = load(tmp_path, A.replace("id: integer", "id: {type: text, domain: {pattern: 'C-[0-9]{3}'}}")).schema.table("a")
    assert (a.key_columns, a.attributes[:1]) == ({"id"}, a.columns[1:2])


def test_the_values_of_an_enum_in_a_key_are_written_out(tmp_path: Path) -> None:
    """Else the file would say that the column is numbered, which no enum can be."""
    listed = "{type: category, sql_type: half, domain: {values: [first, second]}}"
    enums = "enums: {half: [first, second]}\n" + HEAD.lstrip()
    text = enums + SEASON.replace("{type: integer, domain: {min: 1990, max: 2020}}", listed)
    spec = specs.load(tmp_path, text)
    assert [column.name for column in spec.schema.table("b").attributes] == ["season"]
    specs.explained(tmp_path, text.replace(", domain: {values: [first, second]}", ""), "b.season: a key of the enum")


BOSS = "{columns: boss, references: a, max_children: 4, optional: true}"
DETAIL = "  b: {primary_key: a, columns: {a: integer}, foreign_keys: [{columns: a, references: a}]}\n"
PARENT = (
    "  a: {primary_key: id, columns: {id: integer, x: text, y: {type: integer, domain: learn}}, unique: [[x, y]]}\n"
)
CHILD = table("b", "v: integer, w: text", "{columns: [v, w], references: {table: a, columns: [y, x]}, max_children: 2}")
TYPED = A.replace("id: integer", "id: %s") + table("b", "a: %s", "{columns: a, references: a, max_children: 2}")
NAMED = "{columns: %s, references: a, max_children: 2}"
SHARED = A + (
    "  b: {primary_key: [a, n], columns: {a: integer, n: integer}, foreign_keys: ["
    "{columns: a, references: a, max_children: 3}]}\n"
    "  c: {primary_key: id, columns: {id: integer, a: integer, n: integer}, foreign_keys: ["
    f"{OWNED}, {{columns: [a, n], references: b, {LETS_GO}]}}\n"
)
YEARS = "{type: integer, domain: {min: 1990, max: 2020}}"


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        (table("a", "boss: integer", BOSS.replace("max_children: 4, ", "")),
         "a.boss: max_children is missing; declare the most a rows one a row may have"),
        (table("a", "boss: integer", BOSS.replace(", optional: true", "")),
         ("a: refers to itself by a required key; declare a.boss optional: true (filled in last), or leave it out of"
         " the spec")),
        (A + DETAIL.replace("references: a}", "references: a, max_children: 2}"),
         "b.a: max_children is 2, but the key is unique in b; write 1, or leave it out"),
        (PARENT.replace(", unique: [[x, y]]", "") + CHILD,
         ("b.(v,w): refers to a(y, x), which is neither its primary key nor declared unique; refer to (id), or add"
         " unique: [[y, x]] to a")),
        (TYPED % ("text", "uuid"), "b.a: type uuid, but a.id is text; give both the same type"),
        (TYPED % ("timestamptz", "timestamp"), "b.a: type timestamp, but a.id is timestamptz; give both the same type"),
        (TYPED % ("uuid", "integer"), "b.a: type integer, but a.id is uuid; give both the same type"),
        (A + table("b", '"c.d": integer', NAMED % '"c.d"') + table("b.c", "d: integer", NAMED % "d"),
         "b.c.d: two foreign keys of the same name; rename a column"),
        (A + table("b", "a: integer", "{columns: a, references: a, max_children: 3, same_unit: true}"),
         "b.a: same_unit: true on the owner key, where it always holds; remove it"),
        (table("a", "p: integer", "{columns: p, references: p, same_unit: true}") + PUBLIC,
         "a.p: same_unit: true on a key to a public table, whose rows belong to no unit; remove it"),
        (table("a", "boss: integer", "{columns: boss, references: a, optional: true, same_unit: true}"),
         "a.boss: same_unit: true between rows of a, each a unit of its own; remove it"),
        (EDITED.replace("owner: true", "owner: true, on_unit_removed: set null"),
         ("post.a: on_unit_removed: set null on the owner key; write cascade, or leave it out: a row goes with its"
         " owner")),
        (EDITED.replace(OPTIONAL, "optional: true, on_unit_removed: restrict"),
         "post.editor: on_unit_removed is 'restrict'; write cascade or set null"),
        (EDITED.replace("references: a, max_children: 9, optional: true", "references: p, on_unit_removed: cascade")
         + PUBLIC,
         ("post.editor: on_unit_removed: cascade on a key to a public table, whose rows are never removed with"
          " a unit; remove it")),
        (REQUIRED.replace("set null", "set null, same_unit: true").replace("max_children: 9, ", ""),
         ("post.editor: on_unit_removed: set null on a required key with same_unit: true, which costs no noise; remove"
         " it")),
        (REQUIRED.replace("post: {primary_key: id", "post: {primary_key: [id, editor]"),
         ("post.editor: on_unit_removed: set null on a required key with a column of the primary key; write cascade, or"
         " leave it out: without this reference the row would be a different one")),
        (A + table("b", "a: integer, up: integer", OWNED + ", {columns: up, references: b, " + LETS_GO),
         ("b: refers to itself by a required key; declare b.up optional: true (filled in last), or leave it out of the"
         " spec")),
        (SHARED,
         ("c.(a,n): on_unit_removed: set null on a required key that shares a column with c.a; write cascade, or leave"
         " it out: the other key would lose its reference too")),
        (LINKED.replace("owner: true", "owner: true, max_children_per_unit: 9"),
         "c.b: max_children_per_unit on a key that never refers to another unit; remove it"),
        (LINKED.replace("max_children: 10", "same_unit: true"),
         "c.d: max_children_per_unit on a key that never refers to another unit; remove it"),
        (LINKED.replace("d, references: b", "d, references: a"),
         "c.d: max_children_per_unit, but each row of a is a unit; declare only max_children"),
        (LINKED.replace("per_unit: 30", "per_unit: 0"),
         "c.d: max_children_per_unit is 0; declare the most rows that refer to the rows of one unit, 1 or more"),
        (SEASON.replace("id: integer", f"id: {YEARS}", 1),
         "a.id: a domain on a key column that is the whole primary key; remove it: only text keys have a pattern"),
        (SEASON.replace("{a: integer", f"{{a: {YEARS}", 1),
         "b.a: a domain on a key column of a foreign key; remove it: references are generated"),
        (SEASON.replace("foreign_keys: [", "foreign_keys: [{columns: season, references: p}, ") + PUBLIC,
         ("b.season: a domain on a reference to public rows; remove it: only dates and numbers are modelled there, with"
         " domain: learn")),
        (SEASON.replace(YEARS, "{type: text, domain: {pattern: '[a-z]{3}'}}"),
         "b.season: a domain on a key column of type text; remove it, or declare type: category and its values"),
    ],
)  # fmt: skip
def test_what_no_key_can_be_is_refused_in_one_line(tmp_path: Path, tables: str, problem: str) -> None:
    assert problems(tmp_path, tables) == (problem,)


SPOUSES = (
    A
    + table("account", "a: integer, spouse: {type: integer, nullable: true}",
            "{columns: a, references: a, max_children: 3, owner: true},"
            " {columns: spouse, references: a, optional: true, max_children: 1}", ", unique: [[spouse]]")
)  # fmt: skip
VISITS = "{columns: account, references: {table: account, columns: [spouse]}, max_children: 5}"


@pytest.mark.parametrize("promised", ["max_children: 1", "same_unit: true"])
def test_a_key_cannot_refer_to_a_column_that_another_unit_empties(tmp_path: Path, promised: str) -> None:
    """Removing a person would leave the visits of others, and of their owner, without an account."""
    tables = SPOUSES.replace("max_children: 1", promised) + table("visit", "account: integer", VISITS)
    (problem,) = problems(tmp_path, tables)
    assert problem == (
        "visit.account: refers to account.spouse, which becomes NULL when the a row it refers to is removed; refer to"
        " another unique column of account, or write on_unit_removed: cascade for account.spouse"
    )
    load(tmp_path, tables.replace("optional: true,", "optional: true, on_unit_removed: cascade,"))


def test_a_required_key_that_lets_go_is_no_target_either(tmp_path: Path) -> None:
    tables = SPOUSES.replace("optional: true,", "on_unit_removed: set null,").replace(", nullable: true", "")
    assert "refers to account.spouse" in problems(tmp_path, tables + table("visit", "account: integer", VISITS))[0]
    load(tmp_path, tables)


@pytest.mark.parametrize("promised", ["max_children: 1", "same_unit: true"])
def test_rows_that_are_identified_by_their_values_lose_none_of_them(tmp_path: Path, promised: str) -> None:
    """A row that refers outside of its unit would get another number, and others of its owner would be kept."""
    owner = "{columns: a, references: a, max_children: 4, owner: true}"
    other = f"{{columns: other, references: a, optional: true, {promised}}}"
    columns = "{a: integer, other: {type: integer, nullable: true}}"
    events = f"  event: {{row_id: generated, columns: {columns}, foreign_keys: [{owner}, {other}]}}\n"
    (problem,) = problems(tmp_path, A + events)
    assert problem == (
        "event.other: becomes NULL when a unit is removed, but rows of event are identified by their values (row_id);"
        " name a primary key, or write on_unit_removed: cascade"
    )
    load(tmp_path, A + events.replace("optional: true,", "optional: true, on_unit_removed: cascade,"))


def test_a_key_that_has_to_become_null_has_a_column_that_can(tmp_path: Path) -> None:
    owner = "{columns: [a, line], references: {table: b, columns: [a, line]}, max_children: 3, owner: true}"
    shared = "{columns: line, references: {table: b, columns: [code]}, optional: true, max_children: 9}"
    columns = "{a: integer, line: integer, code: {type: integer, domain: {min: 0, max: 9}}}"
    keys = "[{columns: a, references: a, max_children: 9}]"
    b = f"  b: {{primary_key: [a, line], unique: [[code]], columns: {columns}, foreign_keys: {keys}}}\n"
    c = table("c", "a: integer, line: {type: integer, nullable: true}", f"{owner}, {shared}")
    specs.explained(tmp_path, HEAD + A + b + c, "c.line: becomes NULL when the b row it refers to is removed, but its")
