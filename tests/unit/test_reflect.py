"""A drafted spec: complete but for what only the owner can decide."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from privbench_core.errors import SourceError, SpecError
from privbench_core.schema import ColumnType, Learn, Spec, load_spec
from privbench_core.schema.catalogue import Catalogue, FoundColumn, FoundTable
from privbench_core.schema.reflect import reflect

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
        ("name", ColumnType.CATEGORY, Learn(), False),
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


def test_a_folder_has_no_keys_to_draft_from(tmp_path: Path) -> None:
    folder = tmp_path / "town"
    folder.mkdir()
    rows = pa.table({"Home_ID": [1], "kind": pa.array(["a"]).dictionary_encode(), "raw": [b"x"], "on": [1.5]})
    pq.write_table(rows, folder / "home.parquet")
    (folder / "person.csv").write_text("number,home,when it was\n1,1,noon\n", encoding="utf-8")
    draft = reflect(str(folder), "my town")
    assert "noon" not in draft
    assert "primary_key: Home_ID # decide: guessed from the name" in draft
    assert "raw: {type: text, nullable: true} # decide: binary has no type here and is read as text" in draft
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


def test_passwords_do_not_reach_the_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = FoundTable("t", (FoundColumn("id", ColumnType.INTEGER, "BIGINT", nullable=False),), ("id",))
    monkeypatch.setattr("privbench_core.schema.reflect.read_catalogue", lambda _: Catalogue("d", (table,)))
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
