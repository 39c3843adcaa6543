"""Canaries: unmistakable private values go in, a whole run happens, and none of them comes out anywhere."""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
import sqlite3
import struct
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privbench_core.errors import InternalError, PrivbenchError, SourceError
from privbench_core.pipeline import plan_for
from privbench_core.pipeline.executor import run_spec
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.snapshot import observe
from privbench_core.pipeline.workspace import Workspace, database_folder
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Change, Spec, VersionQuery, Watermark
from privbench_core.synthesizers.artifact import Artifact
from tests.helpers.noise import SeededNoise

SPEC = """\
database: aviary
source: rows
privacy: {unit: keeper, delta: 1.0e-9, epsilons: [8], lifetime: {epsilon: 40, delta: 1.0e-8}}
fidelity: {accept_noise: true}
tables:
  keeper:
    primary_key: code
    columns:
      code: {type: text, max_length: 40}
      town: {type: category, domain: learn, nullable: true}
      diary: {type: text, max_length: 30}
      wage: {type: float, domain: {min: 0.0, max: 100.0}}
      owed: {type: integer, domain: learn}
      born: {type: date, domain: learn}
  bird:
    primary_key: ring
    foreign_keys:
      - {columns: keeper_code, references: keeper, max_children: 3, owner: true}
    columns:
      ring: integer
      keeper_code: {type: text, max_length: 40}
      song: {type: category, domain: {values: [trill, chirp]}}
      weight: {type: decimal, precision: 20, scale: 2, domain: {min: 0, max: 50}}
"""

TEXTS = (
    "CANARY-TOWN-QX81",
    "CANARY-DIARY-ZZ42",
    "CANARY-SONG-7J",
    "KEEPERKEY-",  # the start of every private key
)
INTEGERS = (7_654_321_987_654_321, 81_000_000_000_000, 81_000_000_000_007)  # owed by one; rings
FLOATS = (98765.4321,)
DECIMALS = ("31337313373.13",)
DATES = (dt.date(1847, 3, 19),)
KEEPERS = 300


def rows() -> dict[str, pa.Table]:
    """An aviary. Keeper 0 carries every canary; all keys are canaries."""
    rng = np.random.default_rng(0)
    codes = [f"KEEPERKEY-{i:04d}" for i in range(KEEPERS)]
    keeper = {
        "code": codes,
        "town": [TEXTS[0], *(["north", "south", None][i] for i in rng.integers(0, 3, KEEPERS - 1))],
        "diary": [TEXTS[1], *("d" * int(n) for n in rng.integers(0, 30, KEEPERS - 1))],
        "wage": [FLOATS[0], *(float(v) for v in rng.uniform(0, 100, KEEPERS - 1))],
        "owed": [INTEGERS[0], *(int(v) for v in rng.integers(0, 500, KEEPERS - 1))],
        "born": [
            DATES[0],
            *(dt.date(1960, 1, 1) + dt.timedelta(days=int(d)) for d in rng.integers(0, 9000, KEEPERS - 1)),
        ],
    }
    # Rows far above the bound are left out, so that no noisy number comes near the exact one, which has five digits.
    homes = [0] * 10_007 + [int(i) for i in rng.integers(1, KEEPERS, 500)]
    bird = {
        "ring": [INTEGERS[1] + 7 * i for i in range(len(homes))],
        "keeper_code": [codes[i] for i in homes],
        "song": [TEXTS[2] if i == 0 else ["trill", "chirp"][rng.integers(2)] for i in homes],
        "weight": pa.array([DECIMALS[0] if i == 0 else f"{rng.integers(5000) / 100:.2f}" for i in homes]).cast(
            pa.decimal128(20, 2)
        ),
    }
    return {"keeper": pa.table(keeper), "bird": pa.table(bird)}


def aviary(folder: Path, tables: dict[str, pa.Table] | None = None) -> Spec:
    """The aviary as a folder with its spec."""
    (folder / "rows").mkdir(parents=True)
    for name, table in (tables or rows()).items():
        pq.write_table(table, folder / "rows" / f"{name}.parquet")
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return load_spec(folder / "spec.yaml")


def needles() -> list[bytes]:
    """Every canary in every form in which it may lie in a file: text, and the bytes of the number."""
    found = [text.encode() for text in (*TEXTS, *DECIMALS)]
    for number in INTEGERS:
        found += [str(number).encode(), struct.pack("<q", number), f"{number:,}".encode()]
    for value in FLOATS:
        found += [repr(value).encode(), struct.pack("<d", value)]
    for text in DECIMALS:
        found += [struct.pack("<q", int(text.replace(".", "")))]
    for date in DATES:
        found.append(date.isoformat().encode())
    return found


def singing(content: bytes) -> list[bytes]:
    """The canaries that can be heard in ``content``."""
    return [needle for needle in needles() if needle in content]


def spoken(table: pa.Table) -> bytes:
    """All values of a table as text."""
    return "\n".join(str(value) for column in table.columns for value in column.to_pylist()).encode()


@dataclass(frozen=True)
class Aftermath:
    """A run that has happened.

    Attributes:
        spec: What was run.
        out: The bundle.
        scratch: Where temporary files went.
        said: Standard output, standard error and every log record.
    """

    spec: Spec
    out: Path
    scratch: Path
    said: bytes


RUNS = [(name, "memory") for name in ("privbench", "privpetal", "privlava", "relational")] + [("privbench", "duckdb")]
IN_A_CLUSTER = pytest.param(("privbench", "spark"), marks=pytest.mark.slow, id="privbench spark")


@pytest.fixture(scope="module", params=[*RUNS, IN_A_CLUSTER], ids=" ".join)
def aftermath(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    """One full run with production noise and a durable ledger, listened to at the loudest level."""
    folder = tmp_path_factory.mktemp("aviary")
    synthesizer, engine = request.param
    cluster = request.getfixturevalue("cluster") if engine == "spark" else None
    scratch = folder / "scratch"
    scratch.mkdir()
    records: list[str] = []
    listener = logging.Handler(logging.DEBUG)
    listener.emit = lambda record: records.append(record.getMessage() + str(record.exc_info or ""))  # type: ignore[method-assign]
    capture = pytest.MonkeyPatch()
    capture.setattr(tempfile, "tempdir", str(scratch))
    capture.setenv("TMPDIR", str(scratch))
    root = logging.getLogger()
    level = root.level
    root.addHandler(listener)
    root.setLevel(logging.DEBUG)
    try:
        with _listening(folder / "said") as said:
            spec = replace(aviary(folder), synthesizer=synthesizer, engine=engine, cluster=cluster)
            result = run_spec(spec, 8.0, out=folder / "bundle")
        yield Aftermath(spec, result.out, scratch, said.read_bytes() + "\n".join(records).encode())
    finally:
        root.removeHandler(listener)
        root.setLevel(level)
        capture.undo()


class _listening:  # noqa: N801 - reads as a sentence
    """Standard output and standard error of this process and its libraries, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Path:
        sys.stdout.flush()
        sys.stderr.flush()
        self._saved = [os.dup(1), os.dup(2)]
        self._file = self.path.open("wb")
        for descriptor in (1, 2):
            os.dup2(self._file.fileno(), descriptor)
        return self.path

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, saved in zip((1, 2), self._saved, strict=True):
            os.dup2(saved, descriptor)
            os.close(saved)
        self._file.close()


def files(folder: Path) -> list[Path]:
    """All files below a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_canaries_are_there_to_be_heard(aftermath: Aftermath) -> None:
    source = b"".join(spoken(pq.read_table(path)) for path in files(Path(aftermath.spec.source)))
    forms = [
        needle for needle in needles() if needle.isascii() and b"," not in needle and needle.decode().isprintable()
    ]
    assert set(forms) <= set(singing(source))


def test_no_canary_in_the_bundle(aftermath: Aftermath) -> None:
    found = files(aftermath.out)
    assert {path.name for path in found} >= {
        "keeper.parquet",
        "bird.parquet",
        "MANIFEST.json",
        "schema.sql",
        "README.md",
    }
    for path in found:
        assert singing(path.read_bytes()) == [], path.name
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            assert table.num_rows > 0
            assert singing(spoken(table)) == [], path.name
            assert singing(str(pq.read_metadata(path)).encode() + str(pq.read_schema(path).metadata).encode()) == []


def test_no_canary_in_released_artifacts(aftermath: Aftermath) -> None:
    stored = files(database_folder(aftermath.spec) / "releases")
    assert len(stored) > 10
    for path in stored:
        content = path.read_bytes()
        artifact = Artifact.from_bytes(content)
        assert singing(content) == []
        if artifact.table is not None:
            assert singing(spoken(artifact.table)) == []


def test_no_canary_in_the_ledger(aftermath: Aftermath) -> None:
    for path in files(aftermath.spec.state):
        if path.name != "secret.key":
            assert singing(path.read_bytes()) == [], path.name
    raw = sqlite3.connect(aftermath.spec.state / "ledger.sqlite")
    dump = "\n".join(raw.iterdump())
    raw.close()
    assert "profile/keeper" in dump
    assert singing(dump.encode()) == []


def test_no_canary_in_what_was_said_or_left_behind(aftermath: Aftermath) -> None:
    assert singing(aftermath.said) == []
    for path in files(aftermath.scratch):
        assert singing(path.read_bytes()) == [], path.name
    everything = [
        path for path in aftermath.spec.path.parent.rglob("*") if not path.is_relative_to(aftermath.spec.source)
    ]
    assert singing("\n".join(map(str, everything)).encode()) == []


def test_the_exact_number_of_rows_is_not_said(aftermath: Aftermath) -> None:
    manifest = (aftermath.out / "MANIFEST.json").read_text(encoding="utf-8")
    truth = {name: table.num_rows for name, table in rows().items()}
    assert not re.search(rf"\b{truth['bird']}\b", manifest)
    assert not re.search(rf"\b{truth['bird']}\b", aftermath.said.decode(errors="replace"))


@pytest.mark.parametrize("secure", [False, True])
def test_production_refuses_noise_that_can_be_seeded(tmp_path: Path, secure: bool) -> None:
    spec = aviary(tmp_path)
    with pytest.raises(InternalError, match="OpenDP"):
        run_spec(spec, 8.0, out=tmp_path / "bundle", noise=SeededNoise(0, secure=secure))
    assert entries(spec) == 0
    assert not (tmp_path / "bundle").exists()


def entries(spec: Spec) -> int:
    """Number of reservations in the spec's ledger."""
    workspace = Workspace(spec)
    number = len(workspace.ledger.entries())
    workspace.close()
    return number


def _orphans(tables: dict[str, pa.Table]) -> None:
    tables["bird"] = pa.concat_tables([tables["bird"], _strayed(tables["bird"])])


def _strayed(birds: pa.Table) -> pa.Table:
    stray = birds.slice(0, 13).set_column(0, "ring", pa.array([INTEGERS[2] * 3 + i for i in range(13)], pa.int64()))
    return stray.set_column(1, "keeper_code", pa.array([f"KEEPERKEY-NOWHERE-{i}" for i in range(13)]))


def _duplicates(tables: dict[str, pa.Table]) -> None:
    tables["keeper"] = pa.concat_tables([tables["keeper"], tables["keeper"].slice(0, 17)])


def _null_keys(tables: dict[str, pa.Table]) -> None:
    gone = tables["bird"].slice(0, 19).set_column(0, "ring", pa.nulls(19, pa.int64()))
    tables["bird"] = pa.concat_tables([gone, tables["bird"].slice(19)])


def _nulls(tables: dict[str, pa.Table]) -> None:
    wage = pa.array([None] * 23 + [FLOATS[0]] * (KEEPERS - 23), pa.float64())
    tables["keeper"] = tables["keeper"].set_column(3, "wage", wage)


def _wrong_type(tables: dict[str, pa.Table]) -> None:
    tables["keeper"] = tables["keeper"].set_column(4, "owed", pa.array([TEXTS[0]] * KEEPERS))


def _too_precise(tables: dict[str, pa.Table]) -> None:
    birds = tables["bird"]
    tables["bird"] = birds.set_column(3, "weight", pa.array(["98765.4321"] * birds.num_rows))


def _impossible_dates(tables: dict[str, pa.Table]) -> None:
    tables["keeper"] = tables["keeper"].set_column(5, "born", pa.array(["1847-03-19 or so"] * KEEPERS))


MISHAPS = {
    "orphans": (_orphans, r"bird\.keeper_code"),
    "duplicate keys": (_duplicates, r"keeper\.code"),
    "NULL in a key": (_null_keys, r"bird\.ring"),
    "NULL where none may be": (_nulls, r"keeper\.wage"),
    "text for numbers": (_wrong_type, r"keeper\.owed"),
    "more decimals than declared": (_too_precise, r"bird\.weight"),
    "no dates": (_impossible_dates, r"keeper\.born"),
}


@pytest.mark.parametrize("engine", ["memory", "duckdb", pytest.param("spark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("mishap", MISHAPS)
def test_errors_name_places_and_nothing_private(
    tmp_path: Path, mishap: str, engine: str, request: pytest.FixtureRequest
) -> None:
    break_it, where = MISHAPS[mishap]
    tables = rows()
    break_it(tables)
    cluster = request.getfixturevalue("cluster") if engine == "spark" else None
    spec = replace(aviary(tmp_path, tables), engine=engine, cluster=cluster)
    with pytest.raises(SourceError, match=where) as refused:
        run_spec(spec, 8.0, out=tmp_path / "bundle")
    _says_nothing_private(refused.value)
    assert entries(spec) == 0, "an error of the source must be found before anything is paid"
    assert not (tmp_path / "bundle").exists()


@pytest.fixture
def in_duckdb(tmp_path: Path) -> Spec:
    """The aviary in a DuckDB file."""
    spec = aviary(tmp_path)
    path = tmp_path / "aviary.duckdb"
    with duckdb.connect(str(path)) as connection:
        for name in rows():
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM '{tmp_path}/rows/{name}.parquet'")
    return replace(spec, source=str(path))


CHANGES: list[Change] = [
    Watermark("owed"),
    Watermark("diary"),
    VersionQuery("SELECT max(town), min(born), max(wage), max(owed) FROM keeper"),
    VersionQuery("SELECT code FROM keeper WHERE town LIKE 'CANARY%'"),
]


@pytest.mark.parametrize("change", CHANGES, ids=repr)
def test_no_canary_in_what_is_kept_of_versions(
    in_duckdb: Spec, change: Change, capfd: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace(replace(in_duckdb, changes={"keeper": change}))
    found = observe(workspace, ["keeper", "bird"])
    workspace.close()
    assert singing(" ".join(found.values()).encode()) == []
    for path in files(in_duckdb.state):
        assert path.name == "secret.key" or singing(path.read_bytes()) == [], path.name
    said = capfd.readouterr()
    assert said.out + said.err == ""


@pytest.mark.parametrize(
    ("change", "view"),
    [
        (VersionQuery("SELECT max(diary::INTEGER) FROM keeper"), None),
        (VersionQuery("SELECT error(town) FROM keeper"), None),
        (VersionQuery("SELECT code, owed FROM keeper"), None),
        (Watermark("owed"), "owed::INTEGER AS owed"),
        (Watermark("diary"), "diary::DATE AS diary"),
        (None, "owed::INTEGER AS owed"),
        (None, "diary::INTEGER AS diary"),
    ],
)
def test_versions_and_views_that_fail_say_nothing_private(
    in_duckdb: Spec, change: Change | None, view: str | None
) -> None:
    if view is not None:
        with duckdb.connect(in_duckdb.source) as connection:
            connection.execute("ALTER TABLE keeper RENAME TO keepers")
            connection.execute(f"CREATE VIEW keeper AS SELECT * REPLACE ({view}) FROM keepers")
    workspace = Workspace(replace(in_duckdb, changes={"keeper": change} if change else {}))
    with pytest.raises(SourceError) as refused:
        observe(workspace, ["keeper"])
    workspace.close()
    _says_nothing_private(refused.value)


def _says_nothing_private(error: PrivbenchError) -> None:
    """No value, and no number other than those of a declared type."""
    text = re.sub(r"decimal\w*\([\d, ]+\)|int64|(date|uint|int|float)\d\d", "type", str(error))
    assert singing(str(error).encode()) == []
    assert not re.search(r"\d", text), text
    shown = error
    while shown.__cause__ is not None or (shown.__context__ is not None and not shown.__suppress_context__):
        shown = shown.__cause__ or shown.__context__  # type: ignore[assignment]
        assert singing(str(shown).encode()) == [], "a traceback would show a value"


def test_a_dropped_orphan_is_dropped_in_silence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tables = rows()
    _orphans(tables)
    spec = aviary(tmp_path, tables)
    workspace = Workspace(replace(spec, orphans={"bird.keeper_code": "drop"}))
    runner = Runner(workspace, plan_for(spec, 8.0), Run("test"))
    assert runner.snapshot.private.rows("bird") == rows()["bird"].num_rows
    workspace.close()
    said = capfd.readouterr()
    assert said.out + said.err == ""
