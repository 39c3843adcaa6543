"""What of a spec stands in the DDL alone: names, clauses, odd indexes, sequences, computed columns, implied keys."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from privbench_core.backends.postgres import create_schema_sql
from privbench_core.schema.columns import Generated, IdentitySequence
from privbench_core.schema.constraints import Index, parse_actions, usual_name
from tests.helpers.specs import changed as swapped
from tests.helpers.specs import explained, load, problems

SHOP = """
database: shop
source: data
privacy: {unit: person, delta: 1e-9, epsilons: [1], lifetime: {epsilon: 2}}
enums: {mood: [calm, cross]}
tables:
  person:
    primary_key: id
    unique: [[mail]]
    key_names: {"person's": id, one: [mail]}
    indexes: [{name: by_words, columns: words, using: gin (words)}]
    generated: {words: {sql_type: tsvector, expression: to_tsvector(mail), nullable: false}, feels: {sql_type: mood, expression: "'calm'"}}
    columns:
      id: {type: integer, identity: true, sequence: {name: numbers, increment: 2, always: true}}
      mail: text
  student:
    primary_key: id
    foreign_keys: [{columns: id, references: person, constraint: is_person, actions: on delete  cascade}]
    columns: {id: integer}
  grade:
    primary_key: id
    foreign_keys:
      - {columns: of, references: person, constraint: third}
      - {columns: of, references: student, max_children: 9, on_orphan: drop}
    columns: {id: integer, of: integer}
"""  # noqa: E501 - one line of YAML
changed = partial(swapped, SHOP)


def test_all_of_it_is_read_dumped_and_written(tmp_path: Path) -> None:
    spec = load(tmp_path, SHOP)
    person, student, _ = spec.schema.tables
    assert person.key_names == ((("id",), "person's"), (("mail",), "one"))
    assert person.indexes == (Index("by_words", ("words",), "gin (words)"),)
    assert person.column("id").sequence == IdentitySequence("numbers", 2, always=True)
    assert person.generated[0] == Generated("words", "tsvector", "to_tsvector(mail)", nullable=False)
    assert student.foreign_keys[0].actions == "ON DELETE CASCADE"
    sql = create_schema_sql(spec.schema)
    for part in (
        '"id" bigint GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME "numbers" INCREMENT BY 2) NOT NULL,',
        '"words" tsvector GENERATED ALWAYS AS (to_tsvector(mail)) STORED NOT NULL,',
        """"feels" "mood" GENERATED ALWAYS AS ('calm') STORED\n""",
        'ADD CONSTRAINT "person\'s" PRIMARY KEY ("id");',
        'ADD CONSTRAINT "one" UNIQUE ("mail");',
        'ADD CONSTRAINT "is_person" FOREIGN KEY ("id") REFERENCES "person" ("id") ON DELETE CASCADE;',
        'ALTER TABLE "grade" ADD FOREIGN KEY ("of") REFERENCES "student" ("id");',
        'ADD CONSTRAINT "third" FOREIGN KEY ("of") REFERENCES "person" ("id");',
        'CREATE INDEX "by_words" ON "person" USING gin (words);',
    ):
        assert part in sql


def test_a_key_that_follows_from_another_is_for_the_ddl_alone(tmp_path: Path) -> None:
    spec = load(tmp_path, SHOP)
    grade = spec.schema.table("grade")
    assert [key.parent for key in grade.foreign_keys] == ["student"]
    assert [key.parent for key in grade.implied_keys] == ["person"]
    assert spec.orphans["grade.of"] == "drop"
    assert [key.parent for key in spec.schema.ownership_path("grade")] == ["student", "person"]
    # It leads there over two tables as well, and whatever the order of their columns.
    chain = """
  a: {primary_key: [x, y], columns: {x: integer, y: integer}}
  b: {primary_key: [y, x], columns: {x: integer, y: integer}, foreign_keys: [{columns: [x, y], references: a}]}
  c: {primary_key: [p, q], columns: {p: integer, q: integer}, foreign_keys: [{columns: [q, p], references: b}]}
  d:
    primary_key: id
    columns: {id: integer, s: integer, t: integer}
    foreign_keys: [{columns: [s, t], references: a}, {columns: [s, t], references: c, max_children: 3}]
"""
    head = SHOP[: SHOP.index("enums")].replace("unit: person", "unit: a")
    d = load(tmp_path, f"{head}tables:{chain}").schema.table("d")
    assert ([key.parent for key in d.foreign_keys], [key.parent for key in d.implied_keys]) == (["c"], ["a"])
    # With the columns crossed it says something else.
    crossed = f"{head}tables:{chain}".replace("columns: [s, t], references: a", "columns: [t, s], references: a")
    assert any(
        "d.(t,s): two foreign keys on the same" in line or "d.(s,t): two" in line
        for line in problems(tmp_path, crossed)
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # An optional key is no link of a chain.
        ("columns: id, ref", "optional: true, columns: id, ref", "grade.of: two foreign keys on the same columns, to"),
        ("{columns: of, references: p", "{owner: true, columns: of, references: p", "grade.of: the key to person"),
        ("on delete  cascade", "on delete nothing", "student.id: actions is 'on delete nothing'; write clauses like"),
        ("on delete  cascade", "'ON DELETE CASCADE; DROP TABLE x'", "student.id: actions is"),
        ("using: gin (words)", "using: 'gin (words); DROP TABLE x'", "person: the index by_words: using is"),
        ("using: gin (words)", "using: words", "person: the index by_words: using is 'words'; write what follows"),
        ("columns: words,", "columns: wrods,", "person.wrods: no such column"),
        ("one: [mail]", "one: [mail, id]", "person: key_names: one names (mail, id), which is neither the primary"),
        ("one: [mail]", "one: id", "person: key_names: (id) has two names; keep one"),
        ("constraint: is_person", "constraint: 3", "student.id: constraint is 3; write the constraint's name"),
        ("name: numbers", "name: student", "student: a sequence and a table have this name, but PostgreSQL allows"),
        ("increment: 2", "increment: -2", "person.id: increment is -2; write a positive number"),
        ("identity: true, sequence", "sequence", "person.id: sequence is"),
        ("to_tsvector(mail)", "to_tsvector(mial)", "person.words: the expression refers to mial, which is not a"),
        ("to_tsvector(mail)", "'1) STORED, x int DEFAULT (2'", "person.words: the expression is not one expression"),
        ("sql_type: tsvector", "sql_type: 'int; DROP'", "person.words: sql_type is 'int; DROP'; name a type"),
        ("{words: {", "{mail: {", "person.mail: both a column and generated; remove one"),
    ],
)  # fmt: skip
def test_each_mistake_is_explained(tmp_path: Path, old: str, new: str, expected: str) -> None:
    explained(tmp_path, changed(old, new), expected)


def test_names_are_those_that_postgres_gives() -> None:
    assert usual_name("t" * 40, ("c" * 40,), "fkey") == f"{'t' * 29}_{'c' * 28}_fkey"
    assert usual_name("t" * 70, (), "pkey") == f"{'t' * 58}_pkey"
    assert usual_name("ä" * 30, ("b",), "key") == f"{'ä' * 28}_b_key"
    assert parse_actions("") is None
    assert parse_actions("on update restrict on delete set default deferrable initially immediate") is not None
