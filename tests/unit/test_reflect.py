"""A drafted spec: complete but for what only the owner can decide."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundTable
from privbench_core.draft.draft import reflect
from privbench_core.draft.identifying import guess_identifying
from privbench_core.errors import SourceError, SpecError
from privbench_core.schema.columns import ColumnType, Learn, Pattern, Range, Values
from privbench_core.schema.constraints import Check, Index
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec

SHOP = """
CREATE TABLE customer (id BIGINT PRIMARY KEY, name VARCHAR NOT NULL, born DATE, seen TIMESTAMP NOT NULL, vip BOOLEAN);
CREATE TABLE purchase (
    customer BIGINT NOT NULL REFERENCES customer (id), line INTEGER NOT NULL, price DECIMAL(8, 2) NOT NULL,
    weight DOUBLE PRECISION, PRIMARY KEY (customer, line), UNIQUE (price, weight)
);
CREATE TABLE note (
    id BIGINT PRIMARY KEY, customer BIGINT NOT NULL, line INTEGER NOT NULL,
    FOREIGN KEY (customer, line) REFERENCES purchase (customer, line)
);
"""


def decide(path: Path, draft: str, decisions: dict[str, str]) -> Spec:
    for old, new in decisions.items():
        assert old in draft, old
        draft = draft.replace(old, new)
    path.write_text(draft, encoding="utf-8")
    return load_spec(path)


def problems(path: Path, draft: str) -> list[str]:
    path.write_text(draft, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    return list(caught.value.problems)


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_database_is_drafted_with_its_keys(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"shop.{kind}"
    source = str(file) if kind == "duckdb" else f"sqlite:///{file}"
    if kind == "duckdb":
        with duckdb.connect(source) as connection:
            connection.execute(SHOP)
    else:
        engine = sa.create_engine(source)
        with engine.begin() as connection:
            for statement in filter(str.strip, SHOP.split(";")):
                connection.execute(sa.text(statement))
        engine.dispose()
    draft = reflect(source)
    assert "unit: customer # decide:" in draft
    # Nothing but what only the owner knows is missing.
    undecided = "is not decided yet; declare the most rows one parent row may have, 1 or more"
    assert problems(tmp_path / "spec.yaml", draft) == [
        "privacy: epsilons is not decided yet; list at least one number, all above 0, like [0.8, 1.6, 3.2]",
        "privacy.lifetime: epsilon is not decided yet; declare the largest total of all releases there will ever be",
        f"note.(customer,line): max_children {undecided}",
        f"purchase.customer: max_children {undecided}",
    ]
    decisions = {"max_children: CHOOSE": "max_children: 5", "epsilons: CHOOSE": "epsilons: [1]", "CHOOSE}": "3}"}
    spec = decide(tmp_path / "spec.yaml", draft, decisions)
    assert (spec.schema.name, spec.source) == ("shop", source)
    customer, purchase = spec.schema.table("customer"), spec.schema.table("purchase")
    assert [(c.name, c.type, c.domain, c.nullable) for c in customer.columns] == [
        ("id", ColumnType.INTEGER, None, False),
        ("name", ColumnType.TEXT, Pattern(provider="name"), False),
        ("born", ColumnType.DATE, Learn(), True),
        ("seen", ColumnType.TIMESTAMP, Learn(), False),
        ("vip", ColumnType.BOOLEAN, None, True),
    ]
    price = purchase.column("price")
    assert (price.type, price.precision, price.scale) == (ColumnType.DECIMAL, 8, 2)
    assert purchase.column("weight").type is ColumnType.FLOAT
    assert purchase.primary_key == ("customer", "line")
    assert purchase.unique == (("price", "weight"),)
    assert [key.columns for key in spec.schema.ownership_path("note")] == [("customer", "line"), ("customer",)]


def test_a_draft_asks_which_keys_stay_inside_of_a_unit(tmp_path: Path) -> None:
    more = """
CREATE TABLE refund (id BIGINT PRIMARY KEY, customer BIGINT REFERENCES customer (id), note BIGINT REFERENCES note (id));
"""
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute(SHOP + more)
    lines = reflect(str(tmp_path / "shop.duckdb")).splitlines()
    asked = [lines[i - 1].strip() for i, line in enumerate(lines) if "# decide: same_unit: true" in line]
    assert [line.split(", max")[0] for line in asked] == [
        "- {columns: customer, references: {table: customer, columns: [id]}",
        "- {columns: note, references: {table: note, columns: [id]}",
    ]


def test_a_folder_has_no_keys_to_draft_from(tmp_path: Path) -> None:
    folder = tmp_path / "town"
    folder.mkdir()
    rows = pa.table({"Home_ID": [1], "kind": pa.array(["a"]).dictionary_encode(), "raw": [b"x"], "on": [1.5]})
    pq.write_table(rows, folder / "home.parquet")
    (folder / "person.csv").write_text("number,home,when it was\n1,1,noon\n", encoding="utf-8")
    draft = reflect(str(folder), "my town")
    assert "noon" not in draft
    assert "primary_key: Home_ID # decide: guessed from the name" in draft
    assert "raw: {type: bytes, nullable: true} # decide: max_length, the most that is kept (without it 64)" in draft
    assert "number: {type: category, domain: learn, nullable: true} # decide: a CSV header gives no type" in draft
    found = problems(tmp_path / "spec.yaml", draft)
    assert any(line.startswith("privacy: unit is not decided yet") for line in found)
    assert any(line.startswith("person: primary_key is not decided yet") for line in found)
    decisions = {
        "unit: CHOOSE": "unit: home",
        "epsilons: CHOOSE": "epsilons: [1]",
        "epsilon: CHOOSE": "epsilon: 3",
        "primary_key: CHOOSE": "primary_key: number\n"
        "    foreign_keys: [{columns: home, references: home, max_children: 9}]",
        "      number: {type: category, domain: learn, nullable: true}": "      number: integer",
        "      home: {type: category, domain: learn, nullable: true}": "      home: integer",
    }
    spec = decide(tmp_path / "spec.yaml", draft, decisions)
    assert spec.schema.name == "my town"
    assert spec.source == str(folder)
    assert [column.name for column in spec.schema.table("person").columns] == ["number", "home", "when it was"]
    assert spec.schema.table("home").column("on").type is ColumnType.FLOAT


@pytest.mark.parametrize(
    "text",
    [
        "17,QX81,1847-03-19\n", "QX81;17;1847\n", '"id,name\n1,QX81\n', "id,,QX81\n", "QX81,QX81\n",
        "Q\0X81\n", "QX81|1|2\n", "true,QX81,3.5\n",
    ],
)  # fmt: skip
def test_a_first_row_of_values_does_not_reach_the_draft(tmp_path: Path, text: str) -> None:
    (tmp_path / "person.csv").write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=r"^person: person.csv: the first line has the same name twice") as caught:
        reflect(str(tmp_path))
    assert "QX81" not in str(caught.value)


def test_passwords_do_not_reach_the_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = FoundTable("t", (FoundColumn("id", ColumnType.INTEGER, "BIGINT", nullable=False),), ("id",))
    monkeypatch.setattr("privbench_core.draft.draft.read_catalogue", lambda _: Catalogue("d", (table,)))
    draft = reflect("postgresql://me:hunter2@host:5432/d")
    assert "postgresql+psycopg://me:${PRIVBENCH_PASSWORD}@host:5432/d" in draft
    assert "hunter2" not in draft
    monkeypatch.setenv("PGPASS", "x")
    assert "postgresql://me:${PGPASS}@host/d" in reflect("postgresql://me:${PGPASS}@host/d")
    monkeypatch.chdir(tmp_path)
    assert f"source: {tmp_path / 'folder'}" in reflect("folder")


def test_sources_without_a_table(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no table in"):
        reflect(str(tmp_path))
    with pytest.raises(SourceError, match="neither a folder nor a file nor a URL"):
        reflect(str(tmp_path / "none"))
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match="not a readable Parquet file"):
        reflect(str(tmp_path))


EVERYTHING = """
CREATE TYPE mood AS ENUM ('calm', 'it''s');
CREATE SEQUENCE numbers;
CREATE TABLE "Person" (
    id BIGINT PRIMARY KEY DEFAULT nextval('numbers'), mood mood DEFAULT 'calm', stars INTEGER, price DECIMAL(8, 2),
    kind VARCHAR CHECK (kind IN ('a', 'b')), tags VARCHAR[], clock TIME, mail VARCHAR UNIQUE, label VARCHAR UNIQUE,
    seen TIMESTAMPTZ, span INTERVAL, token UUID, raw BLOB, doc JSON, wide HUGEINT, plain FLOAT, height INTEGER,
    CHECK (stars >= 1 AND stars <= 5), CHECK (price >= 0), CHECK (height > 0 AND height < 300), CHECK (len(tags) < 3)
);
CREATE INDEX "by mood" ON "Person" (mood, stars);
CREATE INDEX lowered ON "Person" (lower(kind));
CREATE UNIQUE INDEX tokens ON "Person" (token);
COMMENT ON TABLE "Person" IS 'first
second # line';
COMMENT ON COLUMN "Person".stars IS 'how good: 1 to 5';
"""


def test_all_that_duckdb_knows_is_in_the_draft(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute(EVERYTHING)
        connection.execute("""INSERT INTO "Person" (kind, mail) VALUES ('a', 'somebody@somewhere')""")
    draft = reflect(str(tmp_path / "d.duckdb"))
    assert "somebody" not in draft
    assert "# left out: the index lowered, which is on an expression" in draft
    assert "# left out: tags (VARCHAR[]) holds several values in one; make it a table of its own" in draft
    assert "# left out: clock (TIME) is a time without a day; store an interval, or do without" in draft
    assert "_tags_check, because of tags" in draft
    assert "# decide: {min:, max:}, or learn (paid for) (Person_price_check: at least 0)" in draft
    assert "# decide: looks like e-mail addresses, generated by this rule; else category with" in draft
    assert "label: {type: text, nullable: true} # decide: its values are unique, so new ones are generated" in draft
    spec = decide(tmp_path / "spec.yaml", draft, {"epsilons: CHOOSE": "epsilons: [1]", "epsilon: CHOOSE": "epsilon: 3"})
    (person,) = spec.schema.tables
    assert (person.comment, person.column("stars").comment) == ("first\nsecond # line", "how good: 1 to 5")
    assert person.indexes == (Index("by mood", ("mood", "stars")),)
    assert set(person.unique) == {("mail",), ("label",), ("token",)}
    assert person.column("id").identity
    assert (person.column("mood").domain, person.column("mood").default) == (Values(("calm", "it's")), "'calm'")
    assert Check("Person_kind_check", "kind IN ('a', 'b')") in person.checks
    domains = {column.name: column.domain for column in person.columns}
    assert (domains["stars"], domains["height"], domains["kind"]) == (Range(1, 5), Range(1, 299), Values(("a", "b")))
    assert [(column.name, str(column.type), column.sql_type) for column in person.columns[-6:]] == [
        ("token", "uuid", None),
        ("raw", "bytes", None),
        ("doc", "json", None),
        ("wide", "integer", None),
        ("plain", "float", "real"),
        ("height", "integer", "integer"),
    ]


def test_public_example_data_proposes_domains(tmp_path: Path) -> None:
    source, examples = tmp_path / "source", tmp_path / "examples"
    for folder in (source, examples):
        folder.mkdir()
    (source / "person.csv").write_text("id,age,kind,mail,born,note\n", encoding="utf-8")
    (examples / "person.csv").write_text(
        "id,age,kind,mail,born,note\n1,30,b,x@y,2000-01-01,\n2,40,a,z@y,2010-01-01,\n", encoding="utf-8"
    )
    draft = reflect(str(source), sample_dir=examples)
    assert draft.startswith(
        "# Drafted from the catalogue of the source; no row was read but those of the public example"
    )
    mark = "# decide: from the public example data; widen it to all values that may occur"
    assert f"age: {{type: integer, domain: {{min: 30, max: 40}}, nullable: true}} {mark}" in draft
    assert f"kind: {{type: category, domain: {{values: [a, b]}}, nullable: true}} {mark}" in draft
    assert f"born: {{type: date, domain: {{min: '2000-01-01', max: '2010-01-01'}}, nullable: true}} {mark}" in draft
    assert "mail: {type: text, domain: {faker: email}, nullable: true}" in draft  # never those of the examples
    assert "x@y" not in draft
    with pytest.raises(SourceError, match=r"samples: .* holds no \.parquet or \.csv file"):
        reflect(str(source), sample_dir=tmp_path)
    with pytest.raises(SourceError, match=r"samples: .*none cannot be read \(No such file"):
        reflect(str(source), sample_dir=tmp_path / "none")
    (examples / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match=r"samples: bad\.parquet is not readable"):
        reflect(str(source), sample_dir=examples)


def test_names_that_tell_who_somebody_is() -> None:
    def what(name: str, table: str = "thing") -> str | None:
        guess = guess_identifying(FoundColumn(name, ColumnType.CATEGORY, "text", nullable=True), table, None)
        return guess.what if guess else None

    assert {what(name) for name in ("email", "EMail", "contact_mail", "e-mail")} == {"e-mail addresses"}
    assert {what(name) for name in ("phone", "Mobile", "faxNumber", "home_tel")} == {"phone numbers"}
    assert {what(name) for name in ("last_name", "FirstName", "surname", "lname", "full_name")} == {"names of persons"}
    assert {what(name) for name in ("address", "ship_address2", "Street")} == {"addresses"}
    assert {what(name) for name in ("comment", "AboutMe", "body", "review_text")} == {"free text"}
    assert (what("name", "customers"), what("name", "category")) == ("names of persons", None)
    assert {what(name) for name in ("kind", "status", "country", "emailed", "title", "headphone")} == {None}


def test_catalogue_names_cannot_end_a_remark(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute("""CREATE TABLE "t\nevil: 1" (id BIGINT PRIMARY KEY, "a\n# b: 1" INTEGER[])""")
        connection.execute("""CREATE INDEX "i\nunit: x" ON "t\nevil: 1" (abs(id))""")
    draft = reflect(str(tmp_path / "d.duckdb"))
    assert not any(line.startswith(("evil", "unit: x", "# b")) for line in draft.splitlines())
    assert '"t\\nevil: 1":' in draft


def test_the_unit_is_not_a_list_of_countries(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "d.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE country (id BIGINT PRIMARY KEY, title VARCHAR);"
            "CREATE TABLE client (id BIGINT PRIMARY KEY, country BIGINT REFERENCES country, email VARCHAR);"
            "CREATE TABLE visit (id BIGINT PRIMARY KEY, client BIGINT NOT NULL REFERENCES client)"
        )
    assert "unit: CHOOSE # decide:" in reflect(str(tmp_path / "d.duckdb"))
