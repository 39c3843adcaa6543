"""Which columns of a key of several columns a draft models, and which it numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from privbench_core.draft.draft import Decisions, reflect
from privbench_core.schema.columns import ColumnType, Learn, Values
from privbench_core.schema.tables import Schema
from privbench_core.spec.load import load_spec
from tests.helpers.drafts import csv_folder, duckdb_file, sqlite_file

CLINIC = """
CREATE TYPE route AS ENUM ('oral', 'iv');
CREATE TABLE patient (id BIGINT PRIMARY KEY);
CREATE TABLE drug_class (code VARCHAR PRIMARY KEY);
CREATE TABLE prescription (patient BIGINT REFERENCES patient (id), drug_name VARCHAR, via route, year INTEGER,
    class VARCHAR REFERENCES drug_class (code), line_no INTEGER,
    PRIMARY KEY (patient, drug_name, via, year, class, line_no));
CREATE TABLE contact (patient BIGINT REFERENCES patient (id), email VARCHAR, PRIMARY KEY (patient, email));
CREATE TABLE audit_log (id BIGINT, "at" TIMESTAMP, patient BIGINT REFERENCES patient (id), PRIMARY KEY (id, "at"));
CREATE TABLE ward (name VARCHAR, patient BIGINT REFERENCES patient (id), PRIMARY KEY (patient, name));
CREATE TABLE stay (id BIGINT PRIMARY KEY, patient BIGINT, ward VARCHAR,
    FOREIGN KEY (patient, ward) REFERENCES ward (patient, name));
"""


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The draft of the clinic."""
    source = duckdb_file(tmp_path_factory.mktemp("clinic"), CLINIC)
    return reflect(source, decisions=Decisions(unit="patient", public=("drug_class",)))


@pytest.fixture
def schema(draft: str, tmp_path: Path) -> Schema:
    """Its schema."""
    (tmp_path / "spec.yaml").write_text(draft.replace("CHOOSE", "10"), encoding="utf-8")
    return load_spec(tmp_path / "spec.yaml").schema


def line(draft: str, column: str) -> str:
    """Return the first line of a column."""
    return next(text for text in draft.splitlines() if text.startswith(f"      {column}: "))


def test_what_is_no_reference_is_modelled_unless_it_only_counts(schema: Schema) -> None:
    table = schema.table("prescription")
    assert [column.name for column in table.attributes] == ["drug_name", "via", "year"]
    assert (table.column("drug_name").type, table.column("drug_name").domain) == (ColumnType.CATEGORY, Learn())
    assert table.column("via").domain == Values(("oral", "iv"))
    assert table.column("year").domain == Learn()


def test_a_numbered_column_says_so(draft: str) -> None:
    assert line(draft, "line_no").endswith(
        "# numbers the rows within the rest of the key; declare a domain to keep its values"
    )
    assert "# looks like e-mail addresses: numbered" in line(draft, "email")
    log = draft[draft.index("  audit_log:") :]
    assert line(log, "id").endswith("# numbers the rows; declare a domain to keep its values")


def test_rows_of_a_partitioned_table_are_in_the_order_of_its_time(schema: Schema) -> None:
    log = schema.table("audit_log")
    assert [column.name for column in log.attributes] == ["at"]
    assert log.row_order == "at"


def test_what_refers_to_a_meaning_copies_it(schema: Schema) -> None:
    assert [column.name for column in schema.table("ward").attributes] == ["name"]
    assert schema.table("stay").attributes == ()


def test_what_would_be_free_text_is_a_list_in_a_key(tmp_path: Path) -> None:
    """Violations of rules, by business, day and description, were numbered."""
    sql = """
CREATE TABLE customer (id BIGINT PRIMARY KEY);
CREATE TABLE violation (customer_id BIGINT REFERENCES customer, day DATE, description VARCHAR,
    PRIMARY KEY (customer_id, day, description));
"""
    draft = reflect(str(duckdb_file(tmp_path, sql)))
    assert "description: {type: category, domain: learn}" in draft


def test_who_is_listed_with_a_name_has_the_key_that_the_first_column_is_called_like(tmp_path: Path) -> None:
    """As baseball and hockey databases come: no table is called after players."""
    files = {
        "Master": "playerID,coachID,firstName,lastName,birthYear",
        "Scoring": "playerID,year,goals",
        "Coaches": "coachID,year,wins",
        "Goalies": "playerID,year,saves",
    }
    draft = reflect(csv_folder(tmp_path / "hockey", files), decisions=Decisions(unit="Master"))
    assert "primary_key: playerID" in draft
    assert draft.count("{columns: playerID, references: {table: Master, columns: [playerID]}") == 2


def test_the_first_column_that_numbers_events_is_the_key(tmp_path: Path) -> None:
    """What numbers things may recur, and so does what several tables have."""
    files = {
        "surveys": "record_id,species,weight",
        "pipeline": "opportunity_id,agent",
        "readings": "sensor_id,value",
        "notes": "incident_id,note",
        "labs": "incident_id,lab",
    }
    draft = reflect(csv_folder(tmp_path / "events", files))
    assert draft.count("    primary_key: ") == 2
    assert "primary_key: record_id" in draft
    assert "primary_key: opportunity_id" in draft


LINES = """
CREATE TABLE customer (id BIGINT PRIMARY KEY);
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT NOT NULL REFERENCES customer, order_date DATE NOT NULL);
CREATE TABLE orderlines (orderid BIGINT NOT NULL REFERENCES orders, orderlineid INTEGER NOT NULL,
    order_date DATE NOT NULL, code VARCHAR NOT NULL UNIQUE, maybe INTEGER,
    UNIQUE (orderid, maybe), UNIQUE (orderid, orderlineid));
"""


def test_what_tells_the_rows_of_a_parent_apart_is_a_key_and_its_date_is_a_copy(tmp_path: Path) -> None:
    draft = reflect(duckdb_file(tmp_path, LINES), decisions=Decisions(unit="customer"))
    lines = draft.partition("  orderlines:")[2]
    assert "primary_key: [orderid, orderlineid] # unique in the source, and never NULL" in lines
    assert "unique: [[code], [orderid, maybe]]" in lines
    assert "order_date: {type: date, relative_to: orders.order_date, domain: learn} # the gap" in lines
    (tmp_path / "spec.yaml").write_text(draft, encoding="utf-8")
    table = load_spec(tmp_path / "spec.yaml").schema.table("orderlines")
    assert table.numbered_within("orderlineid") == ("orderid",)


def test_a_number_of_rows_that_all_tables_have_is_no_key_between_them(tmp_path: Path) -> None:
    files = {
        "patients": "ROW_ID,SUBJECT_ID,GENDER,DOB",
        "admissions": "ROW_ID,SUBJECT_ID,HADM_ID,ADMITTIME",
        "transfers": "ROW_ID,SUBJECT_ID,HADM_ID,WARD",
    }
    draft = reflect(csv_folder(tmp_path / "hospital", files))
    assert "unit: patients" in draft
    assert draft.count("{columns: SUBJECT_ID, references: {table: patients, columns: [SUBJECT_ID]}") == 2


def test_a_text_of_any_length_in_sqlite_is_no_single_character(tmp_path: Path) -> None:
    source = sqlite_file(tmp_path, "CREATE TABLE person (id INTEGER PRIMARY KEY, ssn CHAR, zip CHAR(5));")
    draft = reflect(source, decisions=Decisions(unit="person"))
    assert "character(1)" not in draft
    assert "character(5)" in draft


def test_keys_are_found_where_tables_begin_with_the_same_words(tmp_path: Path) -> None:
    source = csv_folder(
        tmp_path,
        {
            "AdventureWorks_Customers": "CustomerKey,BirthDate",
            "AdventureWorks_Product_Categories": "ProductCategoryKey,CategoryName",
            "AdventureWorks_Products": "ProductKey,ProductCategoryKey",
            "AdventureWorks_Territories": "SalesTerritoryKey,Region",
            "AdventureWorks_Sales": "ProductKey,CustomerKey,TerritoryKey,Quarter",
        },
    )
    draft = reflect(source, decisions=Decisions(unit="AdventureWorks_Customers"))
    for key, table, target in (
        ("CustomerKey", "Customers", "CustomerKey"),
        ("ProductKey", "Products", "ProductKey"),
        ("ProductCategoryKey", "Product_Categories", "ProductCategoryKey"),
        ("TerritoryKey", "Territories", "SalesTerritoryKey"),
    ):
        assert f"{{columns: {key}, references: {{table: AdventureWorks_{table}, columns: [{target}]}}" in draft
    assert "CustomerKey: {type: text, domain: {pattern: '[1-9][0-9]{8}'}}" in draft
    assert "Quarter: {type: category" in line(draft, "Quarter")
