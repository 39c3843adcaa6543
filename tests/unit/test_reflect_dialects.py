"""Drafts from databases to which ``users`` is ``Users``, and whose conditions are not in PostgreSQL's words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundKey, FoundTable, with_exact_names
from privbench_core.backends.expressions import checks_in_postgres
from privbench_core.backends.registry import read_catalogue
from privbench_core.draft.draft import Decisions, Survey, reflect, survey
from privbench_core.errors import SourceError
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.constraints import Check
from tests.helpers.drafts import duckdb_file, sqlite_file

ANY_CASE = """
CREATE TABLE Users (UserId INTEGER PRIMARY KEY, Age INTEGER CHECK (age BETWEEN 0 AND 120), Active BOOLEAN NOT NULL);
CREATE TABLE Posts (id INTEGER PRIMARY KEY, userid INTEGER NOT NULL REFERENCES users (USERID), Score INTEGER,
    CHECK (SCORE > -5 AND "Score" < 100));
CREATE TABLE Votes (post INTEGER NOT NULL REFERENCES POSTS, id INTEGER PRIMARY KEY);
"""


@pytest.mark.parametrize("make", [sqlite_file, duckdb_file])
def test_names_in_any_case_are_those_of_tables_and_columns(tmp_path: Path, make: Callable[[Path, str], str]) -> None:
    """A key to ``users`` was left out, so that posts were proposed as public where the table is ``Users``."""
    source = make(tmp_path, ANY_CASE)
    catalogue = read_catalogue(source)
    keys = {t.name: [(k.columns, k.parent, k.parent_columns) for k in t.foreign_keys] for t in catalogue.tables}
    assert keys["Posts"] == [(("userid",), "Users", ("UserId",))]
    assert keys["Votes"] == [(("post",), "Posts", ("id",))]
    conditions = {check.expression for table in catalogue.tables for check in table.checks}
    assert conditions == {'"Age" BETWEEN 0 AND 120', '"Score" > -5 AND "Score" < 100'}
    assert survey(source).candidates("Users") == ()
    draft = reflect(source, decisions=Decisions(unit="Users"))
    assert "  public:" not in draft
    assert "Score: {type: integer, domain: {min: -4, max: 99}" in draft


def test_names_that_differ_in_case_only_are_not_mixed_up() -> None:
    """In PostgreSQL they are two tables; there names are exact anyway, and here none is guessed."""
    one, other = (FoundTable(name, (FoundColumn("id", ColumnType.INTEGER, "", False),)) for name in ("a", "A"))
    child = FoundTable("b", one.columns, foreign_keys=(FoundKey(("id",), "A", ("ID",)),))
    assert with_exact_names([one, other, child])[2].foreign_keys == (FoundKey(("id",), "A", ("id",)),)


COLUMNS = (
    FoundColumn("Qty", ColumnType.INTEGER, "", False),
    FoundColumn("active", ColumnType.BOOLEAN, "", False),
    FoundColumn("kind", ColumnType.CATEGORY, "", False),
)


@pytest.mark.parametrize(
    ("dialect", "condition", "expected"),
    [
        ("sqlite", "[Qty]>=(0) AND [Qty]<=(9)", '"Qty" >= 0 AND "Qty" <= 9'),
        ("sqlite", "active IN (0, 1)", "active IN (FALSE, TRUE)"),
        ("sqlite", "NOT (active = 1 AND qty == 1)", 'NOT (active = TRUE AND "Qty" = 1)'),
        ("mssql", "([Qty]>(0))", '"Qty" > 0'),
        ("mysql", "(`kind` in ('a','b'))", "\"kind\" IN ('a', 'b')"),
        ("of somebody's own", "qty > 0", '"Qty" > 0'),
    ],
)
def test_checks_are_said_in_words_of_postgresql(dialect: str, condition: str, expected: str) -> None:
    assert checks_in_postgres([("c", condition)], dialect, COLUMNS) == ((Check("c", expected),), ())


@pytest.mark.parametrize(
    "condition", ["JSON_VALID(kind) OR kind IS NULL", "kind GLOB '[a-z]*'", "typeof(kind) = 'text'", "("]
)
def test_checks_without_words_in_postgresql_are_left_out_and_named(condition: str) -> None:
    """A table with one of them could not be made."""
    kept, (note,) = checks_in_postgres([("c", condition)], "sqlite", COLUMNS)
    assert (kept, note) == ((), "the check c, which cannot be written for PostgreSQL")


def test_unique_columns_of_sqlite_are_found_whatever_their_type(tmp_path: Path) -> None:
    sql = """
CREATE TABLE person (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, login varchar(150) NOT NULL UNIQUE,
    uuid char(32) NOT NULL UNIQUE, ref char(36) UNIQUE);
"""
    url = sqlite_file(tmp_path, sql)
    assert read_catalogue(url).table("person").unique == (("login",), ("uuid",), ("ref",))
    draft = reflect(url)
    assert "uuid: {type: text, domain: {pattern: '[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}'}" in draft


def test_a_sqlite_file_is_found_or_missed_where_it_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_file(tmp_path, "CREATE TABLE person (id INTEGER PRIMARY KEY);")
    monkeypatch.chdir(tmp_path)
    assert f"source: 'sqlite:///{tmp_path / 'site.db'}'" in reflect("sqlite:///site.db")
    with pytest.raises(SourceError, match=r"there is no file sites\.db"):
        read_catalogue("sqlite:///sites.db")
    assert not (tmp_path / "sites.db").exists()
    assert read_catalogue("site.db") == read_catalogue("sqlite:///site.db")
    (tmp_path / "a%41?b#c").mkdir()
    assert read_catalogue(str((tmp_path / "site.db").rename(tmp_path / "a%41?b#c" / "site.db"))).tables


ID = FoundColumn("id", ColumnType.INTEGER, "", nullable=False)


def table(name: str, *parents: str) -> FoundTable:
    """A table with a key to each parent."""
    return FoundTable(name, (ID,), ("id",), tuple(FoundKey(("id",), parent, ("id",)) for parent in parents))


def doubts(*tables: FoundTable) -> dict[str, tuple[str, ...]]:
    """Table -> what speaks against publishing it, where persons are the units."""
    found = Survey(Catalogue("d", tables), "person").candidates("person")
    return {each.table: each.doubts for each in found}


def test_tables_that_no_row_of_a_unit_refers_to_are_in_doubt() -> None:
    """Nothing but a key says that rows are of places or kinds, rather than of sessions."""
    found = doubts(
        table("person", "city"), table("city", "country"), table("country"), table("session"), table("quarter", "city")
    )
    doubt = "no foreign key leads to it from person data either, so nothing says whose rows these are"
    assert {name for name, listed in found.items() if doubt in listed} == {"session", "quarter"}


def test_tables_that_refer_to_what_is_not_there_are_in_doubt_with_what_depends_on_them() -> None:
    """Persons of another schema, say."""
    found = doubts(table("person", "sale"), table("sale", "other.member"), table("line", "sale"))
    assert "it refers to other.member, which cannot be read here and may hold persons" in found["sale"]
    assert "it depends on sale, which is in doubt" in found["line"]


def test_tables_with_secrets_are_in_doubt() -> None:
    session = FoundTable("web_state", (ID, FoundColumn("session_key", ColumnType.CATEGORY, "text", nullable=False)))
    assert "it has identifying columns (session_key)" in doubts(table("person", "web_state"), session)["web_state"]


def test_a_file_that_may_not_be_opened_is_refused_as_one_that_is_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is SQLite's is only asked to say so: no stack trace for a file of somebody else's."""
    file = tmp_path / "forum.db"
    file.write_bytes(b"no database")

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(SourceError, match=r"forum\.db cannot be opened as a DuckDB file"):
        read_catalogue(str(file))
