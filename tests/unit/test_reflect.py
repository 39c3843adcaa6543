"""A drafted spec: complete but for what only the owner can decide."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundKey, FoundTable
from privbench_core.draft.draft import Decisions, reflect, survey
from privbench_core.draft.names import guess_identifying
from privbench_core.draft.units import guess_unit
from privbench_core.errors import SourceError, SpecError
from privbench_core.schema.columns import ColumnType, Learn, Pattern, Range, Values
from privbench_core.schema.constraints import Check, Index
from privbench_core.spec.model import Spec
from tests.helpers.drafts import csv_folder, duckdb_file, sqlite_file
from tests.helpers.specs import changed, load, problems

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


def decide(folder: Path, draft: str, decisions: dict[str, str] | None = None) -> Spec:
    for old, new in (decisions or {}).items():
        draft = changed(draft, old, new)
    return load(folder, draft)


@pytest.mark.parametrize("make", [duckdb_file, sqlite_file])
def test_a_database_is_drafted_with_its_keys(tmp_path: Path, make: Callable[[Path, str], str]) -> None:
    source = make(tmp_path, SHOP)
    draft = reflect(source)
    assert "unit: customer # each row is protected, with all rows that depend on it (guessed" in draft
    assert "# Nothing is left to fill in." in draft
    spec = decide(tmp_path, draft)
    assert (spec.epsilons, spec.lifetime_epsilon, spec.lifetime_delta) == ((0.8, 3.2), 20, 1e-7)
    assert (spec.schema.name, spec.source) == ("site", source)
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


def draft_of(tmp_path: Path, sql: str, **decisions: object) -> str:
    """Draft from an empty DuckDB file of these tables."""
    return reflect(duckdb_file(tmp_path, sql), decisions=Decisions(**decisions))  # type: ignore[arg-type]


def line_of(draft: str, table: str) -> str:
    """Return what a draft says of a table that may be public."""
    (found,) = (line for line in draft.splitlines() if line.startswith(f"    # - {table} # "))
    return found


def test_a_key_to_the_row_that_the_owner_belongs_to_stays_inside_of_the_unit(tmp_path: Path) -> None:
    more = """
CREATE TABLE refund (id BIGINT PRIMARY KEY, customer BIGINT NOT NULL REFERENCES customer (id), line INTEGER NOT NULL,
    FOREIGN KEY (customer, line) REFERENCES purchase (customer, line));
"""
    spec = decide(tmp_path, draft_of(tmp_path, SHOP + more))
    keys = {key.columns: key for key in spec.schema.table("refund").foreign_keys}
    assert (keys["customer", "line"].owner, keys["customer", "line"].max_children) == (True, 1000)
    assert keys[("customer",)].same_unit


def test_a_bound_that_nothing_enforces_is_never_guessed(tmp_path: Path) -> None:
    friends = """
CREATE TABLE member (id BIGINT PRIMARY KEY, invited_by BIGINT REFERENCES member (id));
CREATE TABLE message (id BIGINT PRIMARY KEY, sender BIGINT NOT NULL REFERENCES member,
    recipient BIGINT NOT NULL REFERENCES member);
"""
    draft = draft_of(tmp_path, friends)
    undecided = "is not decided yet; declare the most rows one parent row may have, 1 or more"
    assert problems(tmp_path, draft) == (
        f"member.invited_by: max_children {undecided}",
        f"message.recipient: max_children {undecided}",
        "message.recipient: on_unit_removed is not decided yet; write cascade or set null",
    )
    lines = draft.splitlines()
    listed = [line for line in lines if line.startswith("#   line ")]
    assert [line.partition(": ")[2] for line in listed] == [
        "max_children of member.invited_by",
        "on_unit_removed and max_children of message.recipient",
    ]
    for line in listed:
        assert "CHOOSE" in lines[int(line.split()[2].rstrip(":")) - 1]


def test_a_folder_of_csv_files_gets_keys_and_types_from_names(tmp_path: Path) -> None:
    files = {
        "hhpub": "HOUSEID,HHSIZE\n30000007,3",
        "perpub": "HOUSEID,PERSONID,R_AGE\n30000007,01,67",
        "vehpub": "HOUSEID,VEHID,make\n30000007,01,35",
        "trippub": "HOUSEID,PERSONID,VEHID,trip_date,distance\n30000007,01,01,2017-06-01,5.2",
    }
    folder = csv_folder(tmp_path / "survey", files)
    draft = reflect(folder, "survey 2017")
    assert "30000007" not in draft
    spec = decide(tmp_path, draft)
    schema = spec.schema
    assert (schema.name, schema.unit, spec.source) == ("survey 2017", "hhpub", folder)
    assert schema.table("hhpub").primary_key == ("HOUSEID",)
    assert schema.table("perpub").primary_key == ("HOUSEID", "PERSONID")
    trip = schema.table("trippub")
    assert trip.row_id == "row_id"
    assert [(key.columns, key.parent, key.owner, key.same_unit) for key in trip.foreign_keys] == [
        (("HOUSEID", "PERSONID"), "perpub", True, False),
        (("HOUSEID", "VEHID"), "vehpub", False, True),
    ]
    assert trip.column("trip_date").type is ColumnType.DATE
    assert trip.column("distance").type is ColumnType.FLOAT
    assert schema.table("perpub").column("R_AGE").domain == Range(0, 120)


def test_a_number_is_a_key_that_is_called_after_the_beginning_of_its_table(tmp_path: Path) -> None:
    files = {
        "drivers": "driverId;name",
        "qualifying": "qualifyId;driverId;position",
        "standings": "raceId;driverId;points",
    }
    spec = decide(tmp_path, reflect(csv_folder(tmp_path, files), decisions=Decisions("drivers")))
    assert spec.schema.table("qualifying").primary_key == ("qualifyId",)
    assert spec.schema.table("standings").row_id == "row_id"


def test_files_say_nothing_of_null_so_an_owner_is_required_and_other_references_are_not(tmp_path: Path) -> None:
    files = {"arenas": "arenaId;city", "drivers": "driverId;name", "teams": "teamId;name"}
    folder = csv_folder(tmp_path, files | {"results": "resultId;arenaId;driverId;teamId"})
    spec = decide(tmp_path, reflect(folder, decisions=Decisions("drivers", ("arenas", "teams"))))
    optional = {key.parent: key.optional for key in spec.schema.table("results").foreign_keys}
    assert (optional["drivers"], optional["teams"]) == (False, True)


def test_a_number_called_after_another_table_is_no_key(tmp_path: Path) -> None:
    folder = csv_folder(tmp_path, {"orders": "id,customer_name", "orderlines": "orderId,quantity"})
    spec = decide(tmp_path, reflect(folder, decisions=Decisions("orders")))
    lines = spec.schema.table("orderlines")
    assert lines.row_id == "row_id"
    assert [key.parent for key in lines.foreign_keys] == ["orders"]


def test_a_folder_without_common_names_leaves_the_unit_to_the_owner(tmp_path: Path) -> None:
    folder = csv_folder(tmp_path / "town", {"visit": "number,when it was\n1,noon"})
    rows = pa.table({"Home_ID": [1], "kind": pa.array(["a"]).dictionary_encode(), "raw": [b"x"], "on": [1.5]})
    pq.write_table(rows, Path(folder) / "home.parquet")
    draft = reflect(folder, "my town")
    assert "noon" not in draft
    assert "primary_key: Home_ID" in draft
    assert "raw: {type: bytes, nullable: true} # max_length: the longest value that is kept (default 64)" in draft
    assert any(line.startswith("privacy: unit is not decided yet") for line in problems(tmp_path, draft))
    spec = decide(tmp_path, reflect(folder, decisions=Decisions("home", ("visit",))))
    assert spec.schema.table("visit").public
    assert spec.schema.table("home").column("on").type is ColumnType.FLOAT
    with pytest.raises(SpecError, match="hom: the source has no such table; did you mean 'home'"):
        reflect(folder, decisions=Decisions("hom"))


@pytest.mark.parametrize(
    ("tables", "unit"),
    [
        (("artist", "album", "track"), None),
        (("hospital", "ward", "bed"), None),
        (("hospital", "patient", "lab"), "patient"),
        (("Artists", "Customers", "Employees"), "Customers"),
        (("customer_demographics", "customer_address", "customer", "store_sales"), "customer"),
        (("household", "person"), "household"),
        (("person", "student", "grade"), "person"),
        (("employee", "salary", "title"), "employee"),
        (("orders", "line", "part", "staff"), None),
        (("ward", "clients", "users"), None),
    ],
)
def test_the_unit_is_guessed_from_names_of_persons_or_not_at_all(tables: tuple[str, ...], unit: str | None) -> None:
    """The table that most others refer to is the first one, which was the guess before."""
    first, *others = tables
    key = FoundColumn("id", ColumnType.INTEGER, "BIGINT", nullable=False)
    above = FoundColumn("above", ColumnType.INTEGER, "BIGINT", nullable=False)
    found = [FoundTable(first, (key,), ("id",))]
    found += [FoundTable(name, (key, above), ("id",), (FoundKey(("above",), first, ("id",)),)) for name in others]
    assert guess_unit(Catalogue("d", tuple(found))) == unit


def test_a_row_that_is_not_the_person_is_pointed_out(tmp_path: Path) -> None:
    draft = draft_of(tmp_path, "CREATE TABLE patient (stayid BIGINT PRIMARY KEY, uniquepid VARCHAR, ward VARCHAR);")
    assert "# uniquepid seems to identify a person and may recur in patient: one person may have several rows." in draft


def test_public_tables_are_listed_once_at_the_top_and_need_no_domains(tmp_path: Path) -> None:
    sql = """
CREATE TABLE country (id BIGINT PRIMARY KEY, title VARCHAR, area DOUBLE, url VARCHAR);
CREATE TABLE staff (id BIGINT PRIMARY KEY, email VARCHAR);
CREATE TABLE client (id BIGINT PRIMARY KEY, country BIGINT REFERENCES country, email VARCHAR);
CREATE TABLE visit (id BIGINT PRIMARY KEY, client BIGINT NOT NULL REFERENCES client, seller BIGINT REFERENCES staff);
"""
    draft = draft_of(tmp_path, sql)
    assert "unit: client # each row" in draft
    doubt = "In doubt: its name suggests rows of persons; it has identifying columns (email)."
    assert doubt in line_of(draft, "staff")
    assert "area: {type: float, nullable: true}" in draft
    (found,) = problems(tmp_path, draft)
    assert found.startswith("privacy: public is not decided yet; list a table if anyone may see its rows, like public:")
    spec = decide(tmp_path, draft, {"public:\n    - CHOOSE": "public: [country, staff]"})
    assert [table.name for table in spec.schema.tables if table.public] == ["country", "staff"]
    mistaken = problems(tmp_path, draft.replace("public:\n    - CHOOSE", "public: [contry]"))
    assert "privacy: public lists 'contry', which is not a table; did you mean 'country'?" in mistaken


def test_tables_that_units_are_linked_with_are_no_public_ones_without_a_word(tmp_path: Path) -> None:
    """Accounts have loans, and several clients: no key leads from a loan to a client, and a loan is not public."""
    sql = """
CREATE TABLE district (id BIGINT PRIMARY KEY, name VARCHAR);
CREATE TABLE client (id BIGINT PRIMARY KEY, district BIGINT REFERENCES district);
CREATE TABLE account (id BIGINT PRIMARY KEY, district BIGINT REFERENCES district);
CREATE TABLE disposition (id BIGINT PRIMARY KEY, client BIGINT NOT NULL REFERENCES client,
    account BIGINT NOT NULL REFERENCES account);
CREATE TABLE loan (id BIGINT PRIMARY KEY, account BIGINT NOT NULL REFERENCES account, amount BIGINT);
"""
    draft = draft_of(tmp_path, sql)
    assert "unit: client # each row" in draft
    both = "both disposition (client data) and loan (not client data) refer to it"
    todo = "if its rows are about the same persons, draft again with --unit account, which protects them"
    assert f"{both}: {todo}" in line_of(draft, "account")
    assert "it depends on account, which is in doubt" in line_of(draft, "loan")
    assert "data) refer to it" not in line_of(draft, "district")


def test_what_units_share_is_no_public_table_without_a_word(tmp_path: Path) -> None:
    """A client has one account with loans; the branch has its staff, but that is not about clients."""
    sql = """
CREATE TABLE branch (id BIGINT PRIMARY KEY, city VARCHAR);
CREATE TABLE clerk (id BIGINT PRIMARY KEY, branch BIGINT NOT NULL REFERENCES branch);
CREATE TABLE account (id BIGINT PRIMARY KEY, opened DATE);
CREATE TABLE client (id BIGINT PRIMARY KEY, branch BIGINT REFERENCES branch, account BIGINT REFERENCES account);
CREATE TABLE loan (id BIGINT PRIMARY KEY, account BIGINT NOT NULL REFERENCES account, amount BIGINT);
"""
    draft = draft_of(tmp_path, sql)
    assert "both client (client data) and loan (not client data) refer to it: if its rows" in line_of(draft, "account")
    assert "data) refer to it" not in line_of(draft, "branch")


def test_a_table_that_seems_to_refer_to_units_is_no_public_one_without_a_word(tmp_path: Path) -> None:
    """Sources declare some keys and forget others."""
    sql = """
CREATE TABLE client (code BIGINT PRIMARY KEY, email VARCHAR);
CREATE TABLE visit (id BIGINT PRIMARY KEY, client BIGINT NOT NULL REFERENCES client, ward BIGINT);
CREATE TABLE claim (id BIGINT PRIMARY KEY, clientcode BIGINT, amount BIGINT);
CREATE TABLE ward (id BIGINT PRIMARY KEY, clientname VARCHAR, floor INTEGER);
"""
    draft = draft_of(tmp_path, sql)
    todo = "if it refers to client, add this foreign key instead of publishing the table"
    assert f"clientcode is named like the key of client: {todo}" in line_of(draft, "claim")
    assert "is named like" not in line_of(draft, "ward")


def test_money_in_floats_is_noticed(tmp_path: Path) -> None:
    sql = "CREATE TABLE client (id BIGINT PRIMARY KEY, payments DOUBLE NOT NULL, fee REAL NOT NULL, weight DOUBLE);"
    draft = draft_of(tmp_path, sql)
    decided = {}
    for name, stored, line in (
        ("payments", "double precision", "{type: float, domain: learn}"),
        ("fee", "real", "{type: float, domain: learn, sql_type: real}"),
    ):
        declared = f"type: decimal, precision: 12, scale: 2, sql_type: {stored}"
        assert f"{name}: {line} # money? Then {declared} keeps whole cents" in draft
        decided[f"{name}: {line}"] = f"{name}: {{{declared}, domain: learn}}"
    table = decide(tmp_path, draft, decided).schema.table("client")
    assert [str(table.column(name).logical) for name in ("payments", "fee")] == ["decimal(12, 2)"] * 2
    assert "weight: {type: float, domain: learn, nullable: true}\n" in draft


def test_whole_numbers_that_are_codes_by_their_names_are_lists_to_learn(tmp_path: Path) -> None:
    sql = """
CREATE TABLE client (id BIGINT PRIMARY KEY, reasoncode BIGINT, zip INTEGER NOT NULL, "errorCode" SMALLINT NOT NULL,
    decoded INTEGER NOT NULL, code INTEGER UNIQUE);
"""
    draft = draft_of(tmp_path, sql)
    assert "reasoncode: {type: integer, domain: {values: learn}, nullable: true}\n" in draft
    assert "zip: {type: integer, domain: {values: learn}, sql_type: integer}\n" in draft
    assert "errorCode: {type: integer, domain: {values: learn}, sql_type: smallint}\n" in draft
    assert "decoded: {type: integer, domain: learn, sql_type: integer}\n" in draft
    assert "code: {type: integer, domain: learn, nullable: true, sql_type: integer}\n" in draft, "no two rows share one"
    learned = [column.name for column in decide(tmp_path, draft).schema.table("client").modelled]
    assert learned == ["reasoncode", "zip", "errorCode", "decoded", "code"]


def test_probable_checks_and_dependencies_are_proposed_as_comments(tmp_path: Path) -> None:
    sql = """
CREATE TABLE player (id BIGINT PRIMARY KEY, "finalGame" DATE, debut DATE, birth_year INTEGER, death_year INTEGER,
    city VARCHAR, state VARCHAR);
"""
    draft = draft_of(tmp_path, sql, unit="player")
    assert '# checks: [{name: debut_before_finalGame, expression: debut <= "finalGame"}' in draft
    assert "{name: birth_year_before_death_year, expression: birth_year <= death_year}" in draft
    assert "# dependencies: [{determinant: city, dependent: state}]" in draft
    kept = draft.replace("    # checks:", "    checks:").replace("    # dependencies:", "    dependencies:")
    assert len(decide(tmp_path, kept).schema.table("player").checks) == 2


def test_what_belongs_together_keeps_its_distance(tmp_path: Path) -> None:
    """Active where no value can be lost by it, else as a comment."""
    sql = """
CREATE TABLE person (id BIGINT PRIMARY KEY, hired_from DATE, hired_to DATE,
    min_pay DECIMAL(8, 2), max_pay DECIMAL(8, 2));
CREATE TABLE sale (id BIGINT PRIMARY KEY, person BIGINT NOT NULL REFERENCES person, ordered_at TIMESTAMP NOT NULL,
    shipped_at TIMESTAMP, delivered_at TIMESTAMP, "order_date" DATE NOT NULL, "required_date" DATE NOT NULL,
    end_time TIMESTAMP NOT NULL, start_time TIMESTAMP, started FLOAT);
"""
    draft = draft_of(tmp_path, sql)
    kept = "relative_to: ordered_at, domain: learn, nullable: true} # the gap to ordered_at is preserved"
    assert f"shipped_at: {{type: timestamp, {kept}" in draft
    assert f"delivered_at: {{type: timestamp, {kept}" in draft, "the one that is never NULL, not shipped_at"
    assert "required_date: {type: date, relative_to: order_date, domain: learn}" in draft
    lost = "# or relative_to: hired_from, domain: learn: preserves the gap to hired_from; it is NULL where hired_from"
    assert f"hired_to: {{type: date, domain: learn, nullable: true}} {lost} is" in draft
    assert "# or relative_to: min_pay, domain: learn: preserves the gap to min_pay" in draft
    assert "end_time: {type: timestamp, domain: learn}" in draft, "it is never NULL, and start_time may be"
    spec = decide(tmp_path, draft)
    assert {c.name: b.name for c, b in spec.schema.table("sale").relatives} == {
        "shipped_at": "ordered_at", "delivered_at": "ordered_at", "required_date": "order_date",
    }  # fmt: skip


def test_dates_that_are_stored_as_text_are_pointed_out(tmp_path: Path) -> None:
    """As by SQLite: a timestamp is read from them where the spec says so."""
    sql = "CREATE TABLE sale (id BIGINT PRIMARY KEY, created_at VARCHAR, order_date VARCHAR, candidate VARCHAR);"
    draft = draft_of(tmp_path, sql)
    remarks = {line.strip().split(":")[0] for line in draft.splitlines() if "dates stored as text?" in line}
    assert remarks == {"created_at", "order_date"}


def test_a_time_after_its_owners_is_proposed_to_keep_its_distance(tmp_path: Path) -> None:
    """As a remark, where the owner has one time at which it began, always there and of the same type."""
    sql = """
CREATE TABLE users (id BIGINT PRIMARY KEY, "CreationDate" TIMESTAMP NOT NULL, "LastAccessDate" TIMESTAMP NOT NULL);
CREATE TABLE posts (id BIGINT PRIMARY KEY, user_id BIGINT NOT NULL REFERENCES users, "CreationDate" TIMESTAMP NOT NULL,
    "ClosedDate" TIMESTAMP, day DATE);
CREATE TABLE votes (id BIGINT PRIMARY KEY, post_id BIGINT NOT NULL REFERENCES posts, cast_at TIMESTAMP, born TIMESTAMP,
    day DATE NOT NULL);
CREATE TABLE links (id BIGINT PRIMARY KEY, post_id BIGINT REFERENCES posts, linked_at TIMESTAMP NOT NULL);
CREATE TABLE visits (id BIGINT PRIMARY KEY, user_id BIGINT NOT NULL REFERENCES users, started_at TIMESTAMP NOT NULL,
    opened_at TIMESTAMP NOT NULL);
CREATE TABLE clicks (id BIGINT PRIMARY KEY, visit_id BIGINT NOT NULL REFERENCES visits, clicked_at TIMESTAMP NOT NULL);
"""
    draft = draft_of(tmp_path, sql)
    orders = sorted(re.findall(r"row_order: (\w+)", draft))
    assert orders == ["CreationDate", "CreationDate", "clicked_at", "day", "linked_at"]
    remark = "# or relative_to: {0}.CreationDate, domain: learn: preserves the gap to {0}.CreationDate"
    lines = {line.strip().split(":")[0]: line for line in draft.splitlines() if "} # or relative_to: " in line}
    assert {name: line.split("} ")[1] for name, line in lines.items()} == {
        "CreationDate": remark.format("users"), "cast_at": remark.format("posts"),
        "started_at": remark.format("users"), "opened_at": remark.format("users"),
    }  # fmt: skip
    assert "ClosedDate: {type: timestamp, relative_to: CreationDate," in draft, (
        "to a column of its row, if there is one"
    )
    plain = f"cast_at: {{type: timestamp, domain: learn, nullable: true}} {remark.format('posts')}"
    assert plain in draft
    kept = plain.replace("domain: learn,", "relative_to: posts.CreationDate, domain: learn,").split(" #")[0]
    votes = decide(tmp_path, draft, {plain: kept}).schema.table("votes")
    assert votes.owner_bases == {"posts.CreationDate": "CreationDate"}


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
    monkeypatch.setattr("privbench_core.draft.draft.read_catalogue", lambda *_: Catalogue("d", (table,)))
    draft = reflect("postgresql://me:hunter2@host:5432/d")
    assert "source: postgresql://me:${PRIVBENCH_PASSWORD}@host:5432/d" in draft.replace("'", "")
    assert "# the password is not written here: set PRIVBENCH_PASSWORD in the environment" in draft
    assert "hunter2" not in draft
    blank = reflect("postgresql://me:hunter2@host/d?schema=Sales Dept")
    assert "postgresql://me:${PRIVBENCH_PASSWORD}@host/d?schema=Sales Dept" in blank
    assert "hunter2" not in reflect("postgresql://host/d?user=me&password=hunter2")
    assert "hun/ter:2" not in reflect("postgresql://me:hun/ter:2@host/d")
    monkeypatch.setenv("DB_HOST", "host")
    beside = reflect("postgresql://me:hunter2@${DB_HOST}/d")
    assert "postgresql://me:${PRIVBENCH_PASSWORD}@${DB_HOST}/d" in beside
    assert "hunter2" not in beside
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
    kind VARCHAR CHECK (kind IN ('a', 'b')), tags VARCHAR[], clock TIME, mail VARCHAR UNIQUE, tag VARCHAR UNIQUE,
    seen TIMESTAMPTZ, span INTERVAL, token UUID, raw BLOB, doc JSON, pairs MAP(VARCHAR, INTEGER),
    parts STRUCT(a INTEGER)[], wide HUGEINT, plain FLOAT, height INTEGER,
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
    row = """INSERT INTO "Person" (kind, mail) VALUES ('a', 'somebody@somewhere')"""
    draft = draft_of(tmp_path, EVERYTHING + row)
    assert "somebody" not in draft
    assert "# left out: the index lowered, which is on an expression" in draft
    assert "tags: {type: json, domain: learn, nullable: true, sql_type: 'text[]'} # common keys and values" in draft
    assert "# left out: pairs (MAP(VARCHAR, INTEGER)) holds several values per row; store them in a table" in draft
    assert "# common keys and values are learned, each as a column; rare ones are made up; STRUCT(" in draft
    assert "clock: {type: interval, domain: {min: PT0S, max: PT24H}, nullable: true} # a time of day" in draft
    assert "# Person_price_check: at least 0" in draft
    assert "# looks like e-mail addresses: new ones are generated" in draft
    assert "tag: {type: text, nullable: true} # unique, so it becomes random text" in draft
    spec = decide(tmp_path, draft)
    (person,) = spec.schema.tables
    assert (person.comment, person.column("stars").comment) == ("first\nsecond # line", "how good: 1 to 5")
    assert person.indexes == (Index("by mood", ("mood", "stars")),)
    assert set(person.unique) == {("mail",), ("tag",), ("token",)}
    assert person.column("id").identity
    assert (person.column("mood").domain, person.column("mood").default) == (Values(("calm", "it's")), "'calm'")
    assert Check("Person_kind_check", "kind IN ('a', 'b')") in person.checks
    domains = {column.name: column.domain for column in person.columns}
    assert (domains["stars"], domains["height"], domains["kind"]) == (Range(1, 5), Range(1, 299), Values(("a", "b")))
    assert [(column.name, str(column.type), column.sql_type) for column in person.columns[-7:]] == [
        ("token", "uuid", None),
        ("raw", "bytes", None),
        ("doc", "json", None),
        ("parts", "json", None),
        ("wide", "integer", None),
        ("plain", "float", "real"),
        ("height", "integer", "integer"),
    ]


def test_public_example_data_proposes_domains(tmp_path: Path) -> None:
    header, examples = "id,age,kind,mail,born,note", tmp_path / "examples"
    source = csv_folder(tmp_path / "source", {"person": header})
    csv_folder(examples, {"person": header + "\n1,30,b,x@y,2000-01-01,\n2,40,a,z@y,2010-01-01,"})
    draft = reflect(source, sample_dir=examples)
    assert draft.startswith(
        "# Drafted from the catalogue of the source; no row was read but those of the public example"
    )
    mark = "# from the public example data; widen it to all values that may occur"
    assert f"age: {{type: integer, domain: {{min: 30, max: 40}}, nullable: true}} {mark}" in draft
    assert f"kind: {{type: category, domain: {{values: [a, b]}}, nullable: true}} {mark}" in draft
    assert f"born: {{type: date, domain: {{min: '2000-01-01', max: '2010-01-01'}}, nullable: true}} {mark}" in draft
    assert "mail: {type: text, domain: {faker: email}, nullable: true}" in draft  # never those of the examples
    assert "x@y" not in draft
    with pytest.raises(SourceError, match=r"samples: .* holds no \.parquet or \.csv file"):
        reflect(source, sample_dir=tmp_path)
    with pytest.raises(SourceError, match=r"samples: .*none cannot be read \(No such file"):
        reflect(source, sample_dir=tmp_path / "none")
    (examples / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(SourceError, match=r"samples: bad\.parquet is not readable"):
        reflect(source, sample_dir=examples)


def test_example_data_may_be_in_parts_as_the_source_may(tmp_path: Path) -> None:
    for place, values in (("source", [[]]), ("examples", [[3, 5], [4, 9]])):
        folder = tmp_path / place / "visit"
        folder.mkdir(parents=True)
        for part, found in enumerate(values):
            rows = pa.table({"id": pa.array(range(len(found)), pa.int64()), "nights": pa.array(found, pa.int64())})
            pq.write_table(rows, folder / f"part-{part}.parquet")
    assert "nights: {type: integer, domain: {min: 3, max: 9}" in reflect(
        str(tmp_path / "source"), sample_dir=tmp_path / "examples"
    )
    pq.write_table(pa.table({"nights": ["many"]}), tmp_path / "examples" / "visit" / "part-2.parquet")
    with pytest.raises(SourceError, match=r"samples: the files of visit differ in their columns"):
        reflect(str(tmp_path / "source"), sample_dir=tmp_path / "examples")


def test_names_that_tell_who_somebody_is() -> None:
    def what(name: str, table: str = "thing") -> str | None:
        guess = guess_identifying(FoundColumn(name, ColumnType.CATEGORY, "text", nullable=True), table, None)
        return guess.what if guess else None

    assert {what(name) for name in ("email", "EMail", "contact_mail", "e-mail")} == {"e-mail addresses"}
    assert {what(name) for name in ("phone", "Mobile", "faxNumber", "home_tel")} == {"phone numbers"}
    assert {what(name) for name in ("last_name", "FirstName", "surname", "lname", "full_name")} == {"names of persons"}
    assert {what(name) for name in ("address", "ship_address2", "Street")} == {"addresses"}
    assert {what(name) for name in ("comment", "AboutMe", "body", "review_text")} == {"free text"}
    assert {what(name) for name in ("nameFirst", "nameLast")} == {"names of persons"}
    assert {what(name, "customers") for name in ("name", "FIRST", "last")} == {"names of persons"}
    assert {what(name, "lap") for name in ("FIRST", "last")} == {None}
    assert what("name", "category") == what("title") == what("Composer") == "values that few rows share"
    assert {what(name) for name in ("kind", "status", "country", "emailed", "headphone")} == {None}
    # Whole words, and the last ones: a number of a street is no street, and a flag of a channel no address.
    assert {what(name) for name in ("street_number", "phone_type", "address_count", "email_opt_in")} == {None}
    flag = FoundColumn("channel_email", ColumnType.CATEGORY, "CHAR(1)", nullable=True)
    assert guess_identifying(flag, "promotion", 1) is None


def test_text_is_a_list_to_learn_unless_it_identifies_or_is_unique_or_long(tmp_path: Path) -> None:
    sql = """
CREATE TABLE customer (id BIGINT PRIMARY KEY, name VARCHAR, email VARCHAR);
CREATE TABLE label (id BIGINT PRIMARY KEY, customer_id BIGINT NOT NULL REFERENCES customer, name VARCHAR,
    title VARCHAR(255), notes VARCHAR, code VARCHAR UNIQUE, serial_number VARCHAR);
"""
    draft = draft_of(tmp_path, sql, unit="customer")
    assert "looks like free text: if values rarely repeat, type: text costs less" in draft
    customer, label = decide(tmp_path, draft).schema.tables
    assert {str(c.domain) for c in customer.attributes} == {
        "Pattern(regex=None, provider='name')",
        "Pattern(regex=None, provider='email')",
    }
    learned = {column.name for column in label.attributes if column.domain == Learn()}
    assert learned == {"name", "title", "notes"}
    assert {str(column.type) for column in label.attributes if column.domain is None} == {"text"}


def test_numbers_of_things_are_lists_and_those_of_persons_and_amounts_are_none(tmp_path: Path) -> None:
    sql = """
CREATE TABLE customer (id BIGINT PRIMARY KEY);
CREATE TABLE product (id BIGINT PRIMARY KEY);
CREATE TABLE sale (id BIGINT PRIMARY KEY, customer_id BIGINT NOT NULL REFERENCES customer, product_id BIGINT,
    storeid INT, coupon_upc BIGINT, friend_id BIGINT, patient_id BIGINT, "yearID" INT, paid INT, bid INT,
    ticket_id BIGINT UNIQUE);
CREATE TABLE refund (id BIGINT PRIMARY KEY, customer_id BIGINT NOT NULL REFERENCES customer, sale_id BIGINT);
"""
    draft = draft_of(tmp_path, sql, unit="customer", public=("product",))
    assert (
        "product_id: {type: integer, domain: {values: learn}, nullable: true} # named like the key of product" in draft
    )
    assert "sale_id: {type: integer, domain: learn, nullable: true} # named like the key of sale" in draft
    sale = decide(tmp_path, draft).schema.table("sale")
    assert [column.name for column in sale.attributes if column.learns_list] == [
        "product_id", "storeid", "coupon_upc", "friend_id",
    ]  # fmt: skip


def test_catalogue_names_cannot_end_a_remark(tmp_path: Path) -> None:
    sql = """CREATE TABLE "t\nevil: 1" (id BIGINT PRIMARY KEY, "a\n# b: 1" INTEGER[]);"""
    draft = draft_of(tmp_path, sql + """CREATE INDEX "i\nunit: x" ON "t\nevil: 1" (abs(id))""")
    assert not any(line.startswith(("evil", "unit: x", "# b")) for line in draft.splitlines())
    assert '"t\\nevil: 1":' in draft


def keys_of(folder: str) -> dict[str, list[tuple[str, str, bool]]]:
    """Columns, parent and whether they may be NULL, of the proposed single keys of each table."""
    return {
        table.name: [(key.columns[0], key.parent, table.column(key.columns[0]).nullable) for key in table.foreign_keys]
        for table in survey(folder).catalogue.tables
    }


def test_columns_that_many_tables_share_make_no_key_of_a_table_that_none_is_called_after(tmp_path: Path) -> None:
    files = {
        "People": "playerID,birthYear",
        "HallOfFame": "playerID,yearID,votes",
        "AwardsPlayers": "playerID,awardID,yearID,lgID",
        "Batting": "playerID,yearID,stint,teamID,lgID,G",
    }
    folder = csv_folder(tmp_path, files)
    found = {table.name: table.primary_key for table in survey(folder).catalogue.tables}
    assert found == {"People": ("playerID",), "HallOfFame": (), "AwardsPlayers": (), "Batting": ()}
    to_people = [("playerID", "People", False)]
    assert keys_of(folder) == {"People": [], "HallOfFame": to_people, "AwardsPlayers": to_people, "Batting": to_people}


@pytest.mark.parametrize(
    ("files", "keys"),
    [
        (  # in a role
            {"users": "Id,Reputation", "posts": "Id,OwnerUserId,LastEditorUserId,PostTypeId,Score",
             "votes": "Id,PostId,UserId,VoteTypeId", "household": "HHID,income",
             "person": "PERID,household_id,age"},
            {"users": [], "posts": [("OwnerUserId", "users", True), ("LastEditorUserId", "users", True)],
             "votes": [("PostId", "posts", False), ("UserId", "users", True)], "household": [],
             "person": [("household_id", "household", False)]},
        ),
        (  # like a table, which means its `id`; one with a key of its own name is referred to by that
            {"patients": "ID,BIRTHDATE", "visits": "ID,PATIENT,CODE", "drugs": "VISIT,PATIENT,CODE",
             "wards": "ward_id,floor", "beds": "bed_id,ward_id,ward"},
            {"patients": [], "visits": [("PATIENT", "patients", False)],
             "drugs": [("PATIENT", "patients", False), ("VISIT", "visits", True)], "wards": [],
             "beds": [("ward_id", "wards", False)]},
        ),
    ],
)  # fmt: skip
def test_a_column_called_after_a_table_refers_to_it(
    tmp_path: Path, files: dict[str, str], keys: dict[str, list[tuple[str, str, bool]]]
) -> None:
    """Without the keys, visits and drugs of patients would be proposed as public."""
    assert keys_of(csv_folder(tmp_path, files)) == keys


def test_a_table_called_after_persons_is_not_proposed_as_public_without_a_word(tmp_path: Path) -> None:
    folder = csv_folder(tmp_path, {"household": "HHID,income", "person": "number,age"})
    draft = reflect(folder, decisions=Decisions(unit="household"))
    assert "public:\n    - CHOOSE # decide" in draft
    assert "In doubt: its name suggests rows of persons" in line_of(draft, "person")


def test_tables_called_alike_are_told_apart_and_rows_are_numbered_within_their_parent(tmp_path: Path) -> None:
    """As a shop exports them: every name begins and ends with the same word, and lines are numbered within orders."""
    files = {
        "shop_customers_data": "customer_id,customer_unique_id,customer_zip_code",
        "shop_orders_data": "order_id,customer_id,order_approved_at",
        "shop_order_items_data": "order_id,order_item_id,product_id,price,freight_value",
        "shop_order_payments_data": "order_id,payment_sequential,payment_value",
        "shop_products_data": "product_id,weight_g",
    }
    draft = reflect(csv_folder(tmp_path, files))
    spec = yaml.safe_load(draft)
    tables = spec["tables"]
    assert spec["privacy"]["unit"] == "shop_customers_data"
    assert "customer_unique_id seems to identify a person and may recur in shop_customers_data" in draft
    assert tables["shop_orders_data"]["primary_key"] == "order_id"
    assert tables["shop_order_items_data"]["primary_key"] == ["order_id", "order_item_id"]
    assert tables["shop_order_payments_data"]["row_id"] == "generated"
    owners = {
        name: [k["references"]["table"] for k in t.get("foreign_keys", ()) if k.get("owner")]
        for name, t in tables.items()
    }
    assert owners["shop_order_items_data"] == owners["shop_order_payments_data"] == ["shop_orders_data"]
    assert owners["shop_orders_data"] == ["shop_customers_data"]
    assert tables["shop_orders_data"]["columns"]["order_approved_at"]["type"] == "timestamp"
    money = {tables["shop_order_items_data"]["columns"][name]["scale"] for name in ("price", "freight_value")}
    assert money == {2}


def test_a_table_that_is_neither_public_nor_connected_is_left_to_decide(tmp_path: Path) -> None:
    draft = reflect(
        csv_folder(tmp_path, {"player": "player_id,hand", "match": "winner,loser,score"}),
        decisions=Decisions("player", ()),
    )
    assert "public:\n    - CHOOSE # decide" in draft
    assert line_of(draft, "match").startswith(
        "    # - match # No table refers to it, and no foreign key leads from it to player"
    )
    assert "To fill in, 1" in draft
    assert "public: [match]" in reflect(str(tmp_path), decisions=Decisions("player", ("match",)))
