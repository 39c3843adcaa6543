"""All that PostgreSQL has beside rows, through every command: a source, a draft, a run, a target, the same draft again.

What a schema.sql can say comes back word for word; what it cannot say is named in the draft with its reason.
"""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from privbench_core.backends.duckdb import duckdb_schema
from privbench_core.cli import app
from privbench_core.schema.columns import Generated, IdentitySequence
from privbench_core.schema.constraints import Check
from privbench_core.schema.identity import canonical_json, column_identity, key_identity
from privbench_core.spec.load import load_spec
from tests.helpers.postgres import new_database, rows
from tests.helpers.specs import changed

LONG = "Tabelle mit einem sehr langen Namen, der dreiundsechzig Byte hat"[:63]
KEPT = f"""
CREATE SCHEMA other;
CREATE TYPE other.mood AS ENUM ('calm', 'it''s');
CREATE TYPE mood AS ENUM ('x', 'y');
CREATE DOMAIN small AS integer DEFAULT 3 CHECK (VALUE > 0);
CREATE DOMAIN other.smaller AS small CHECK (VALUE < 10);
CREATE TABLE person (
    id integer GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME "Numbers of persons" INCREMENT BY 3)
        CONSTRAINT "Person key" PRIMARY KEY,
    mail varchar(80) NOT NULL CONSTRAINT one_mail UNIQUE, feel other.mood NOT NULL DEFAULT 'it''s',
    kind mood NOT NULL DEFAULT 'x', n other.smaller, body text, doc jsonb,
    born date NOT NULL CHECK (born BETWEEN '1900-01-01' AND '2020-01-01'),
    half integer GENERATED ALWAYS AS (n / 2) STORED,
    words tsvector GENERATED ALWAYS AS (to_tsvector('english', coalesce(body, ''))) STORED NOT NULL
);
COMMENT ON COLUMN person.words IS 'for search';
CREATE INDEX by_born ON person (born DESC NULLS LAST, mail text_pattern_ops);
CREATE INDEX by_words ON person USING gin (words);
CREATE INDEX by_doc ON person USING gin (doc jsonb_path_ops) WITH (fastupdate = off);
CREATE INDEX by_range ON person USING brin (born) WITH (pages_per_range = 16);
CREATE INDEX by_hash ON person USING hash (mail);
CREATE INDEX in_part ON person (born) INCLUDE (kind) WHERE mail IN ('a', 'b') AND feel = 'calm' AND body LIKE 'it''s %';
CREATE INDEX "By all" ON person (lower(mail), (n + 1), coalesce(body, 'x;'));
CREATE UNIQUE INDEX one_each ON person (born, mail);
CREATE TABLE student (
    id integer PRIMARY KEY CONSTRAINT is_person REFERENCES person
        ON DELETE CASCADE ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED,
    year smallint CHECK (year BETWEEN 1 AND 9)
);
CREATE TABLE tutor (
    id integer PRIMARY KEY REFERENCES student ON DELETE RESTRICT REFERENCES person, paid boolean NOT NULL
);
CREATE SEQUENCE grades;
CREATE TABLE grade (
    id integer PRIMARY KEY DEFAULT nextval('grades'), student int NOT NULL REFERENCES student,
    CONSTRAINT "also a person" FOREIGN KEY (student) REFERENCES person ON DELETE SET DEFAULT DEFERRABLE,
    tutor int REFERENCES tutor ON DELETE SET NULL REFERENCES person,
    points numeric(4, 1) CHECK (points BETWEEN 0 AND 99)
);
ALTER SEQUENCE grades OWNED BY grade.id;
CREATE TABLE "{LONG}" (
    "select" serial PRIMARY KEY,
    "Spalte mit einem sehr langen Namen, der dreiundsechzig Byte Ä" int UNIQUE REFERENCES person
);
"""
ROWS = """
INSERT INTO person (mail, feel, n, born, body)
    SELECT 'p' || i, 'calm', 1 + i % 9, date '1950-01-01' + i * 30, 'words' FROM generate_series(1, 200) i;
INSERT INTO student SELECT id, 1 + id % 9 FROM person WHERE id % 2 = 0;
INSERT INTO tutor SELECT id, id % 4 = 0 FROM student WHERE id % 3 = 1;
INSERT INTO grade (student, tutor, points) SELECT id, (SELECT max(id) FROM tutor), id % 90 FROM student;
"""
LOST = """
CREATE FUNCTION mine(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE SEQUENCE shared; CREATE SEQUENCE odd INCREMENT BY -1; CREATE DOMAIN year AS int CHECK (mine(VALUE) > 0);
CREATE TABLE a (
    id int PRIMARY KEY, name text COLLATE "C", m int DEFAULT mine(4), s int NOT NULL DEFAULT nextval('shared'),
    t bigint DEFAULT nextval('odd'), y year, bad int GENERATED ALWAYS AS (mine(m)) STORED, tags bytea[],
    many int GENERATED ALWAYS AS (cardinality(tags)) STORED, place int4range, CHECK (mine(m) > 0),
    found tsvector, first int GENERATED ALWAYS AS (lower(place)) STORED, CONSTRAINT near CHECK (place <@ '[0,9]'),
    CONSTRAINT few CHECK (length(tags[1]) > 0 OR true), CONSTRAINT apart EXCLUDE USING gist (place WITH &&),
    CONSTRAINT late UNIQUE (m) DEFERRABLE, CONSTRAINT wide UNIQUE (s) INCLUDE (name),
    CONSTRAINT one UNIQUE NULLS NOT DISTINCT (t)
);
ALTER TABLE a ADD CONSTRAINT soon CHECK (m > 0) NOT VALID;
CREATE INDEX of_found ON a USING gist (found);
CREATE INDEX of_mine ON a (mine(m)); CREATE INDEX of_tags ON a USING gin (tags);
CREATE UNIQUE INDEX partly ON a (m) WHERE name IS NULL; CREATE UNIQUE INDEX lowered ON a (lower(name));
CREATE UNIQUE INDEX down ON a (name DESC);
CREATE TRIGGER watched BEFORE INSERT ON a FOR EACH ROW EXECUTE FUNCTION watch();
ALTER TABLE a ENABLE ROW LEVEL SECURITY;
CREATE TABLE b (more text, a int) INHERITS (a);
ALTER TABLE b ADD CONSTRAINT perhaps FOREIGN KEY (a) REFERENCES a NOT VALID;
CREATE TABLE p (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
CREATE TABLE c (
    id int, day date, FOREIGN KEY (id, day) REFERENCES p MATCH FULL ON DELETE SET NULL (day),
    x int REFERENCES a REFERENCES d
);
CREATE VIEW v AS SELECT 1; CREATE MATERIALIZED VIEW w AS SELECT 1;
""".replace("CREATE TABLE c (", "CREATE TABLE d (id int PRIMARY KEY);\nCREATE TABLE c (")


def privbench(*arguments: object) -> str:
    shown = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert shown.exit_code == 0, shown.output
    return shown.output


def draft_of(url: str, file: Path) -> str:
    privbench("init", url, "-o", file)
    return file.read_text(encoding="utf-8")


# A few rows at ε = 2 are mostly noise.
ACCEPT_NOISE = "fidelity: {accept_noise: true}"


@pytest.fixture(scope="module")
def place(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a draft of the source, and the spec that an owner makes of it."""
    folder = tmp_path_factory.mktemp("kept")
    spec = draft_of(new_database(postgres, "kept", KEPT + ROWS), folder / "draft.yaml")
    spec = changed(spec, "epsilons: [0.8, 3.2]", "epsilons: [2]")
    spec = changed(spec, "max_children_per_unit: CHOOSE", "max_children_per_unit: 5")
    spec = changed(spec, "\ntables:", f"\n{ACCEPT_NOISE}\ntables:")
    (folder / "spec.yaml").write_text(spec, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def target(postgres: str, place: Path) -> str:
    """A database with a benchmark of the source."""
    url = new_database(postgres, "published")
    privbench("run", place / "spec.yaml", "--epsilon", 2, "--out", place / "bundle")
    privbench("publish", place / "bundle", url)
    return url


def test_the_draft_holds_what_the_ddl_needs(place: Path) -> None:
    schema = load_spec(place / "spec.yaml").schema
    person, grade = schema.table("person"), schema.table("grade")
    assert {enum.name: enum.values for enum in schema.enums} == {"mood": ("x", "y"), "other_mood": ("calm", "it's")}
    assert person.column("id").sequence == IdentitySequence("Numbers of persons", 3, always=True)
    assert (person.column("feel").default, person.column("n").default) == ("'it''s'", "3")
    assert person.key_names == ((("id",), "Person key"), (("born", "mail"), "one_each"), (("mail",), "one_mail"))
    assert person.checks[:2] == (Check("n_small_check", "n > 0"), Check("n_smaller_check", "n < 10"))
    assert person.generated == (
        Generated("half", "integer", "(n / 2)"),
        Generated(
            *("words", "tsvector", "to_tsvector('english'::regconfig, COALESCE(body, ''::text))"),
            nullable=False,
            comment="for search",
        ),
    )
    assert {index.name: index.using for index in person.indexes or ()} == {
        "By all": "btree (lower((mail)::text), ((n + 1)), COALESCE(body, 'x;'::text))",
        "by_born": "btree (born DESC NULLS LAST, mail text_pattern_ops)",
        "by_doc": "gin (doc jsonb_path_ops) WITH (fastupdate=off)",
        "by_hash": "hash (mail)",
        "by_range": "brin (born) WITH (pages_per_range='16')",
        "by_words": "gin (words)",
        "in_part": "btree (born) INCLUDE (kind) WHERE mail IN ('a', 'b') AND feel = 'calm' AND body LIKE 'it''s %'",
    }
    assert grade.column("id").sequence == IdentitySequence("grades")
    assert [(key.columns, key.parent, key.actions) for key in grade.foreign_keys] == [
        (("student",), "student", None),
        (("tutor",), "tutor", "ON DELETE SET NULL"),
    ]
    assert [(key.columns, key.parent, key.constraint, key.actions) for key in grade.implied_keys] == [
        (("student",), "person", "also a person", "ON DELETE SET DEFAULT DEFERRABLE"),
        (("tutor",), "person", "grade_tutor_fkey1", None),
    ]
    # What stands only in the DDL does not make a release another one.
    assert "Numbers of persons" not in canonical_json([column_identity(column) for column in person.columns])
    assert "also a person" not in canonical_json([key_identity(key) for key in grade.foreign_keys])


def test_reflecting_the_result_gives_the_same_draft(place: Path, target: str) -> None:
    again = draft_of(target, place / "again.yaml")
    other = re.compile(r"^(database|source): .*\n|^#   line .*\n| *# left out: .*\n", re.MULTILINE)
    assert other.sub("", again) == other.sub("", (place / "draft.yaml").read_text(encoding="utf-8"))


def test_the_result_is_the_database_of_a_dba(target: str) -> None:
    definition = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = '{}'"
    assert rows(target, definition.format("is_person")) == [
        ("FOREIGN KEY (id) REFERENCES person(id) ON UPDATE CASCADE ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED",)
    ]
    assert rows(target, definition.format("also a person")) == [
        ("FOREIGN KEY (student) REFERENCES person(id) ON DELETE SET DEFAULT DEFERRABLE",)
    ]
    assert rows(target, "SELECT count(*) > 0, bool_and(half IS NOT DISTINCT FROM n / 2) FROM person") == [(True, True)]
    (last,) = rows(target, "SELECT max(id) FROM person")[0]
    ((new,),) = rows(target, "INSERT INTO person (mail, born) VALUES ('new', '2000-01-01') RETURNING id")
    assert isinstance(last, int)
    assert new == last + 1
    with pytest.raises(psycopg.errors.GeneratedAlways):
        rows(target, "INSERT INTO person (id, mail, born) VALUES (0, 'other', '2000-01-01') RETURNING id")


def test_duckdb_names_what_it_has_no_words_for(place: Path) -> None:
    left_out = duckdb_schema(load_spec(place / "spec.yaml").schema).left_out
    assert "person.words: the computed column" in left_out
    assert "person: the index by_doc, of a kind that DuckDB does not have" in left_out


def test_what_is_lost_is_named_with_its_reason(postgres: str, tmp_path: Path) -> None:
    draft = draft_of(new_database(postgres, "lost", LOST), tmp_path / "draft.yaml")
    found = {line.strip().removeprefix("# left out: ") for line in draft.splitlines() if "# left out: " in line}
    assert found == {
        "of_tags, which needs tags",
        "tags (bytea[]) holds several values per row; store them in a table of their own, or do without this column",
        "the shared sequence of s, which gets its own",
        "NOT VALID of the check soon",
        "DEFERRABLE of the constraint late",
        "NOT VALID of the foreign key perhaps",
        "the INCLUDE of the constraint wide",
        "the MATCH FULL of the foreign key c_id_day_fkey",
        "the NULLS NOT DISTINCT of the constraint one",
        "the check a_m_check, which needs the function mine(integer)",
        "the check few, which needs tags",
        "the check near, which needs the type int4range of place, which is read as text",
        "the check year_check of the domain of y, which needs the function mine(integer)",
        "the collation C of name",
        "the computed column bad, which needs the function mine(integer)",
        "the computed column first, which needs the type int4range of place, which is read as text",
        "the computed column many, which needs tags",
        "the default of m, which needs the function mine(integer)",
        "the exclusion constraint apart",
        "the foreign key on (x) to d, because these columns already refer to a",
        "the form of the unique index down, btree (name DESC)",
        "the index of_found, which needs the type tsvector of found, which is read as text",
        "the index lowered, which is on an expression and unique, and synthetic rows would violate it",
        "the index of_mine, which needs the function mine(integer)",
        "the index partly, which is partial and unique, and synthetic rows would violate it",
        "the limit of the foreign key perhaps to some partitions; here it holds for all of a",
        "the foreign key on (a), because one of its columns is left out",
        "the tables b, which inherit from a: their rows are here, without the columns a, more",
        "the name of the domain year, the type of y; its own type and checks are kept",
        "the numbering of t, which may be NULL or is not an integer",
        "the row security of a, which may hide rows from this login",
        "the list of columns that the foreign key c_id_day_fkey sets on delete; all are set",
    }
    lost = "not carried over: 2 functions (mine, watch); 2 sequences (odd, shared); 1 trigger (watched on a)"
    assert f"  # {lost}\n" in draft


def test_keys_that_only_partitions_declare_say_whose_the_rows_are(postgres: str, tmp_path: Path) -> None:
    script = """
    CREATE TABLE customer (id int PRIMARY KEY);
    CREATE TABLE kind (id int PRIMARY KEY);
    CREATE TABLE payment (payer int, kind int REFERENCES kind, day date) PARTITION BY RANGE (day);
    CREATE TABLE p1 (day date, payer int REFERENCES customer, kind int);
    ALTER TABLE payment ATTACH PARTITION p1 FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
    CREATE TABLE p2 PARTITION OF payment FOR VALUES FROM ('2021-01-01') TO ('2023-01-01') PARTITION BY RANGE (day);
    CREATE TABLE p21 PARTITION OF p2 (FOREIGN KEY (payer) REFERENCES customer, FOREIGN KEY (kind) REFERENCES kind)
        FOR VALUES FROM ('2021-01-01') TO ('2022-01-01');
    CREATE TABLE p22 PARTITION OF p2 FOR VALUES FROM ('2022-01-01') TO ('2023-01-01');
    """
    draft = draft_of(new_database(postgres, "parts", script), tmp_path / "draft.yaml")
    payment = draft[draft.index("\n  payment:") :]
    assert (
        "# left out: the limit of the foreign key p1_payer_fkey to some partitions; here it holds for all of payment"
        in payment
    )
    assert payment.count("{columns: payer, references: {table: customer, columns: [id]}") == 1
    assert payment.count("{columns: kind, references: {table: kind, columns: [id]}") == 1
    assert payment.count("the limit of the foreign key") == 1
    assert "    # - kind # payment refers to it" in draft
    assert "# - payment #" not in draft, "it is data of customers"
