"""How a change of the source is noticed, by each choice, and what is kept of what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privbench_core.backends.duckdb import DuckDBSource
from privbench_core.backends.folder import FolderSource
from privbench_core.backends.integrity import fingerprint_files
from privbench_core.errors import SourceError, SpecError
from privbench_core.pipeline.snapshot import Snapshot, observe
from privbench_core.pipeline.workspace import Workspace
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Change, Spec, VersionQuery, Watermark

PERSON = ["person"]
SEEN = 987_654_321  # the largest mark: somebody's, so private
CellCounts = Callable[[Spec], dict[str, str]]


@pytest.fixture
def folder(town_spec: Path) -> Spec:
    return load_spec(town_spec)


@pytest.fixture
def database(town_spec: Path, town) -> Spec:
    """The same town in DuckDB, where persons have a mark that the spec does not declare."""
    spec = load_spec(town_spec)
    path = spec.path.parent / "town.duckdb"
    for name, rows in town.tables.items():
        held = rows.append_column("mark", pa.array([1] * (rows.num_rows - 1) + [SEEN])) if name == "person" else rows
        with duckdb.connect(str(path)) as connection:
            connection.register("rows", held)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
    return replace(spec, source=str(path))


@pytest.fixture
def look() -> Iterator[CellCounts]:
    """Fingerprints of a spec's tables now."""
    opened: list[Workspace] = []

    def now(spec: Spec) -> dict[str, str]:
        opened.append(Workspace(spec))
        return observe(opened[-1], PERSON)

    yield now
    for workspace in opened:
        workspace.close()


def by(spec: Spec, change: Change) -> Spec:
    return replace(spec, changes={"person": change})


def execute(spec: Spec, statement: str) -> None:
    with duckdb.connect(spec.source) as connection:
        connection.execute(statement)


TOUCHED = f"UPDATE person SET age = 1, mark = {SEEN + 1} WHERE id = 5000"
UNTOUCHED = "UPDATE person SET age = 2 WHERE id = 5000"
DELETED = "DELETE FROM person WHERE id = 5001"
INSERTED = "INSERT INTO person SELECT 9999, household_id, age, works, 1 FROM person WHERE id = 5000"
ELSEWHERE = "UPDATE household SET rooms = 1 WHERE id = 100"


@pytest.mark.parametrize(
    ("change", "sees"),
    [
        (None, {TOUCHED, UNTOUCHED, DELETED, INSERTED}),
        (Watermark("mark"), {TOUCHED, DELETED, INSERTED}),
        (VersionQuery("SELECT max(mark) FROM person"), {TOUCHED}),
        (VersionQuery("SELECT 1, 'whatever' WHERE 'a' LIKE 'a%'"), set()),
    ],
)
def test_each_choice_sees_what_it_says(database: Spec, look: CellCounts, change: Change | None, sees: set[str]) -> None:
    spec = by(database, change) if change else database
    before = look(spec)
    for statement in (TOUCHED, UNTOUCHED, DELETED, INSERTED, ELSEWHERE):
        assert look(spec) == before
        execute(spec, statement)
        after = look(spec)
        assert (after != before) == (statement in sees), statement
        before = after


@pytest.mark.parametrize("change", [None, Watermark("mark"), VersionQuery("SELECT max(mark) FROM person")])
def test_what_was_seen_is_hashed_with_the_secret(database: Spec, look: CellCounts, change: Change | None) -> None:
    """Else whoever sees a log could confirm a guess of the rows, or of the largest mark."""
    spec = by(database, change) if change else database
    (fingerprint,) = look(spec).values()
    assert str(SEEN) not in fingerprint
    kept = b"".join(path.read_bytes() for path in spec.state.rglob("*") if path.is_file())
    assert str(SEEN).encode() not in kept
    other = replace(spec, state=spec.state.parent / "other")
    assert look(other) != look(spec)


def test_a_table_compared_otherwise_counts_as_changed(database: Spec, look: CellCounts) -> None:
    choices = [database, by(database, Watermark("mark")), by(database, Watermark("age"))]
    assert len({look(spec)["person"] for spec in choices}) == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Watermark("xmin"), r"^person: change: \{watermark: xmin\} works only for tables of PostgreSQL; name a column"),
        (Watermark("marc"), r"^person: the watermark marc is not a column of the source; did you mean 'mark'\?"),
        (VersionQuery("SELECT mark FROM person"), "^person: its query under change returns several rows; write one"),
        (VersionQuery("SELECT mark FROM person WHERE mark < 0"), "^person: its query under change returns no row"),
        (VersionQuery("SELECT max(mrk) FROM person"), r"^person: its query under change failed \(BinderException\)"),
        (VersionQuery("SELECT CAST('Smith' AS INTEGER)"), r"^person: its query under change failed \(Conversion"),
        (VersionQuery("DROP TABLE person"), r"^person: its query under change failed \(InvalidInput"),
    ],
)
def test_what_a_source_cannot_tell_is_refused(database: Spec, look: CellCounts, change: Change, said: str) -> None:
    with pytest.raises(SourceError, match=said) as error:
        look(by(database, change))
    assert "Smith" not in str(error.value)


@pytest.mark.parametrize(("change", "asked"), [(Watermark("age"), "watermark"), (VersionQuery("SELECT 1"), "sql")])
def test_a_folder_has_no_versions(folder: Spec, look: CellCounts, change: Change, asked: str) -> None:
    with pytest.raises(
        SourceError, match=rf"^person: change: \{{{asked}: \.\.\}} needs a database, .* remove the line"
    ):
        look(by(folder, change))


def refuse(*_: object) -> pa.Table:
    raise AssertionError("read again")


def test_files_with_the_same_bytes_are_not_read_again(
    folder: Spec, look: CellCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = look(folder)
    with monkeypatch.context() as patch:
        patch.setattr(FolderSource, "read", refuse)
        assert look(folder) == first
        household, person = folder.schema.tables
        narrow = replace(folder.schema, tables=(household, replace(person, columns=person.columns[:-1])))
        with pytest.raises(AssertionError):  # read as something else, it is something else
            look(replace(folder, schema=narrow))
    path = folder.path.parent / "person.parquet"
    pq.write_table(pq.read_table(path)[::-1], path, compression="zstd")
    with monkeypatch.context() as patch:
        patch.setattr(FolderSource, "read", refuse)
        with pytest.raises(AssertionError):
            look(folder)
    assert look(folder) == first  # the same rows, in other bytes: nothing to pay for again
    pq.write_table(pq.read_table(path).slice(1), path)
    assert look(folder) != first


def test_digests_of_files_are_hashed_with_the_secret(folder: Spec, look: CellCounts) -> None:
    """Else whoever sees the state folder could confirm a guess of a file."""
    look(folder)
    digest = fingerprint_files([folder.path.parent / "person.parquet"])
    kept = [path.read_bytes() for path in folder.state.rglob("*") if path.is_file()]
    assert kept
    assert not any(digest.encode() in content for content in kept)


def test_what_changes_while_it_is_read_is_not_remembered(
    folder: Spec, look: CellCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder.path.parent / "person.parquet"
    read = FolderSource.read

    def meanwhile(source: FolderSource, table) -> pa.Table:
        rows = read(source, table)
        pq.write_table(pq.read_table(path).slice(1), path)
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(FolderSource, "read", meanwhile)
        old = look(folder)
    assert look(folder) != old


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"person": 1}', '{"person": ["a"]}'])
def test_a_damaged_memory_is_no_memory(folder: Spec, look: CellCounts, damage: str) -> None:
    first = look(folder)
    (folder.state / "town" / "stored.json").write_text(damage)
    assert look(folder) == first


def test_a_view_of_a_duckdb_file_is_read_every_time(database: Spec, look: CellCounts) -> None:
    outside = database.path.parent / "person.parquet"
    execute(database, "ALTER TABLE person RENAME TO persons")
    execute(database, f"CREATE VIEW person AS SELECT * FROM read_parquet('{outside}')")
    before = look(database)
    pq.write_table(pq.read_table(outside).slice(1), outside)
    assert look(database) != before


def test_a_duckdb_file_with_unwritten_changes_is_not_taken_for_the_old_one(database: Spec) -> None:
    source = DuckDBSource(Path(database.source))
    person = database.schema.table("person")
    before = source.stored([person])
    Path(f"{database.source}.wal").write_bytes(b"")
    assert source.stored([person]) != before


def test_a_run_asks_for_the_version_before_it_reads_the_rows(database: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else rows that changed in between would be released under the version that they are about to get."""
    spec = by(database, Watermark("mark"))
    asked: list[str] = []
    for name in ("read", "version"):
        plain = getattr(DuckDBSource, name)
        monkeypatch.setattr(
            DuckDBSource, name, lambda *given, name=name, plain=plain: asked.append(name) or plain(*given)
        )
    workspace = Workspace(spec)
    snapshot = Snapshot(workspace)
    assert snapshot.tables["person"].num_rows > 0
    assert asked.index("version") < len(asked) - 1 - asked[::-1].index("read")
    assert snapshot.fingerprint("person") == observe(workspace, PERSON)["person"]
    workspace.close()


def declared(path: Path, written: str) -> Path:
    """The spec with a ``change`` of person."""
    text, key = path.read_text(), "  person:\n    primary_key: id\n"
    path.write_text(text.replace(key, f"  person:\n    change: {written}\n    primary_key: id\n"))
    return path


@pytest.mark.parametrize(
    ("written", "changes"),
    [
        ("content", {}),
        ("{watermark: updated_at}", {"person": Watermark("updated_at")}),
        ('{sql: "SELECT 1"}', {"person": VersionQuery("SELECT 1")}),
    ],
)
def test_a_spec_says_how_changes_are_noticed(town_spec: Path, written: str, changes: dict[str, Change]) -> None:
    assert load_spec(declared(town_spec, written)).changes == changes


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("sometimes", "person: change is 'sometimes'; write content, {watermark: updated_at} or {sql: 'select ..'}"),
        ("{watermark: a, sql: b}", "person: change is {'sql': 'b', 'watermark': 'a'}; write content, "),
        ("{watermark: [a]}", "person.change: watermark is ['a']; name a column that grows with every change"),
        ("{sql: ''}", "person.change: sql is ''; write a query that returns one row"),
        ("{sql: null}", "person.change: sql is missing; write a query that returns one row"),
        ("{watermarks: a}", "person.change: unknown key 'watermarks'; did you mean 'watermark'?"),
        ("{watermark: a}\n    public: true", "person: change is {'watermark': 'a'}; a public table is published as it"),
    ],
)
def test_mistakes_in_it_are_named(town_spec: Path, written: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        load_spec(declared(town_spec, written))
    assert any(line.startswith(said) for line in str(error.value).splitlines()), str(error.value)
