"""Broken specs and broken source files through the command line: one clear message each, and nothing private in it."""

from __future__ import annotations

import copy
import csv
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from privbench_core.cli import app
from privbench_core.spec.yaml_io import read_yaml, write_yaml
from tests.conftest import SPEC
from tests.helpers.fake_synthesizer import FakeSynthesizer

FEW, MANY = 60, 500
Rng = np.random.Generator
TEXT, NUMBER, KEY = "CANARY-QX81", 7_654_321_987, 8_100_000_000_000
_FURTHER = re.compile(r"  \S|owner only: |[\w.,()]+: ")  # another problem of the same kind, and where
CANARIES = [TEXT, "QX81", str(NUMBER), f"{NUMBER:,}", "810000000", f"{KEY:,}"[:9], "98765.4321"]
ODD: list[Any] = [
    None, [], {}, "", 0, -1, True, 1.5, 10**30, float("inf"), float("nan"), "x", "\0", "\u202e", "a/b", "../..",
    "$HOME",
    ["a"], [[1]], [None], {"a": {"b": [1]}}, "household", "learn", "integer", "2026-01-01",
    "é" * 70, "x" * 100_000,
]  # fmt: skip


def rows() -> dict[str, pa.Table]:
    """A town in which every value is a canary, or beside one."""
    ids = [KEY + i for i in range(12)]
    return {
        "household": pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "region": [TEXT, *["east", "north", "west"] * 3, "east", "east"],
                "rooms": pa.array([NUMBER, *range(1, 9), 1, 2, 3], pa.int64()),
                "income": [98765.4321, *[None] * 3, *[float(i) for i in range(8)]],
            }
        ),
        "person": pa.table(
            {
                "id": pa.array([KEY + 100 + i for i in range(20)], pa.int64()),
                "household_id": pa.array([ids[i % 12] for i in range(20)], pa.int64()),
                "age": pa.array([NUMBER, *range(1, 20)], pa.int64()),
                "works": [True, False] * 10,
            }
        ),
    }


# -- what goes wrong with a spec -------------------------------------------------------------------------


def _bytes_changed(text: bytes, rng: Rng) -> bytes:
    """Some bytes dropped, doubled, or replaced."""
    content = bytearray(text)
    for _ in range(int(rng.integers(1, 6))):
        at = int(rng.integers(len(content)))
        content[at : at + int(rng.integers(3))] = bytes(rng.integers(0, 256, int(rng.integers(3)), dtype=np.uint8))
    return bytes(content)


def _lines_changed(text: bytes, rng: Rng) -> bytes:
    """Lines dropped, doubled, swapped and indented otherwise."""
    lines = text.decode().splitlines()
    for _ in range(int(rng.integers(1, 4))):
        one, other = (int(n) for n in rng.integers(len(lines), size=2))
        match int(rng.integers(4)):
            case 0 if len(lines) > 2:
                del lines[one]
            case 1:
                lines.insert(other, lines[one])
            case 2:
                lines[one], lines[other] = lines[other], lines[one]
            case _:
                lines[one] = [" ", "\t", "- ", "? ", "&a ", "*a ", "!!python/object:os.system ", "%YAML 1.1\n"][
                    int(rng.integers(8))
                ] + lines[one]
    return "\n".join(lines).encode()


def _places(content: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in inside:
        yield (*here, name)
        yield from _places(value, (*here, name))


def _values_changed(text: bytes, rng: Rng) -> bytes:
    """Any part replaced by something odd."""
    content, _ = read_yaml(text.decode())
    for _ in range(int(rng.integers(1, 4))):
        every = list(_places(content))
        *above, last = every[int(rng.integers(len(every)))]
        node = content
        for name in above:
            node = node[name]
        node[last] = copy.deepcopy(ODD[int(rng.integers(len(ODD)))])
        if not list(_places(content)):
            break
    return write_yaml(content).encode()


def _encoded_otherwise(text: bytes, rng: Rng) -> bytes:
    """Another encoding, the end missing, or nothing that is a spec at all."""
    forms: list[bytes] = [
        text.decode().encode("utf-16"), b"\xef\xbb\xbf" + text, text[: int(rng.integers(len(text)))], b"", b"\0" * 99,
        b"\xff\xfe\xfd", b"[" * 5000, b"{a: " * 3000, b"a: &a [*a]\n", b"--- 1\n--- 2\n", text * 2, b"- " * 2000,
        ("a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{n}: &{n} [{','.join(['*' + b] * 9)}]\n"
                                                 for b, n in zip("abcdefgh", "bcdefghi", strict=True))).encode(),
    ]  # fmt: skip
    return forms[int(rng.integers(len(forms)))]


# -- what goes wrong with a source -----------------------------------------------------------------------


def _as_csv(table: pa.Table, **how: Any) -> str:
    text = io.StringIO()
    writer = csv.writer(text, **how)
    writer.writerow(table.column_names)
    writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return text.getvalue()


def _cells_changed(folder: Path, name: str, table: pa.Table, rng: Rng) -> None:
    """A CSV file with cells that are no values of their columns, or break keys."""
    lines = [line.split(",") for line in _as_csv(table).splitlines()]
    for _ in range(int(rng.integers(1, 5))):
        line = lines[int(rng.integers(len(lines)))]
        odd = [
            "", '"', "1e400", "NaN", "-0", "1.5.2", f"{TEXT}\0", "9" * 40, "2026-13-45", "\u2028", ",", "NULL",
            str(KEY),
        ]  # fmt: skip
        line[int(rng.integers(len(line)))] = odd[int(rng.integers(len(odd)))]
    if rng.random() < 0.3:
        lines.append(lines[-1])
    (folder / f"{name}.csv").write_text("\n".join(",".join(line) for line in lines), encoding="utf-8")


def _file_damaged(folder: Path, name: str, table: pa.Table, rng: Rng) -> None:
    """A Parquet file with bytes missing or replaced."""
    path = folder / f"{name}.parquet"
    pq.write_table(table, path)
    content = bytearray(path.read_bytes())
    if rng.random() < 0.4:
        content = content[: int(rng.integers(len(content)))]
    for _ in range(int(rng.integers(1, 30))):
        if content:
            content[int(rng.integers(len(content)))] = int(rng.integers(256))
    path.write_bytes(bytes(content))


def _not_what_it_says(folder: Path, name: str, table: pa.Table, rng: Rng) -> None:
    """A file of another kind or encoding, without the line of names, a folder, two files, or text that is none."""
    text = _as_csv(
        table,
        delimiter=[",", ";", "\t", "|"][int(rng.integers(4))],
        quoting=int(rng.integers(4)) or csv.QUOTE_ALL,
        escapechar="\\",
    )
    match int(rng.integers(10)):
        case 9:
            pq.write_table(table.set_column(1, table.column_names[1], _no_text(len(table))), folder / f"{name}.parquet")
        case 8:
            broken = [text.partition("\n")[2], f'"{text}', "x" * 200_000 + text][int(rng.integers(3))]
            (folder / f"{name}.csv").write_text(broken, encoding="utf-8")
        case 0:
            (folder / f"{name}.parquet").write_text(text, encoding="utf-8")
        case 1:
            pq.write_table(table, folder / f"{name}.csv")
        case 2:
            (folder / f"{name}.csv").write_text(text, encoding="utf-16")
        case 3:
            (folder / f"{name}.csv").write_bytes(text.encode().replace(b"east", b"\xe9\xff"))
        case 4:
            (folder / f"{name}.parquet").mkdir()
        case 5:
            pq.write_table(table, folder / f"{name}.parquet")
            (folder / f"{name}.csv").write_text(text, encoding="utf-8")
        case 6:
            (folder / f"{name}.parquet").write_bytes(b"")
        case _:
            (folder / f"{name}.csv").write_text(text, encoding="utf-8")


def _no_text(rows: int) -> pa.Array:
    """Bytes that say of themselves that they are text, and are not."""
    offsets = np.arange(rows + 1, dtype=np.int32) * 4
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(b"QX8\xff" * rows)])


def _columns_changed(folder: Path, name: str, table: pa.Table, rng: Rng) -> None:
    """Columns that are missing, twice, of another type, nested, or in another order."""
    at = int(rng.integers(table.num_columns))
    field = table.column_names[at]
    values = table.column(at).to_pylist()
    match int(rng.integers(8)):
        case 0:
            table = table.drop_columns([field])
        case 1:
            table = table.append_column(field, table.column(at))
        case 2:
            table = table.set_column(at, field, pa.array([[value] for value in values]))
        case 3:
            table = table.set_column(at, field, pa.array([f"{value} {TEXT}" for value in values]))
        case 4:
            table = table.set_column(at, field, pa.nulls(len(values)))
        case 5:
            table = pa.concat_tables([table, table.slice(0, 3)])
        case 6:
            table = table.set_column(at, field, pa.array([str(value).encode() for value in values], pa.binary()))
        case _:
            table = table.slice(0, 0).select(list(reversed(table.column_names)))
    pq.write_table(table, folder / f"{name}.parquet")


SPECS: list[Callable[[bytes, Rng], bytes]] = [_bytes_changed, _lines_changed, _values_changed, _encoded_otherwise]
SOURCES: list[Callable[[Path, str, pa.Table, Rng], None]] = [
    _cells_changed, _file_damaged, _not_what_it_says, _columns_changed,
]  # fmt: skip


def _case(folder: Path, number: int) -> list[str]:
    """Write a spec and a source, one of them broken; return the arguments of a command."""
    rng = np.random.default_rng(number)
    spec, broken = folder / "spec.yaml", ""
    spec.write_bytes(SPEC.encode())
    if number % 2:
        spec.write_bytes(SPECS[number // 2 % len(SPECS)](SPEC.encode(), rng))
    else:
        broken = ["household", "person"][int(rng.integers(2))]
    for name, table in rows().items():
        if name == broken:
            SOURCES[number // 2 % len(SOURCES)](folder, name, table, rng)
        else:
            pq.write_table(table, folder / f"{name}.parquet")
    run = ["run", str(spec), "--epsilon", "0.8", "--out", str(folder / "out")]
    others = [
        ["plan", str(spec)],
        ["ledger", str(spec), "--json"],
        ["init", str(folder), "--out", str(folder / "new.yaml")],
    ]
    return run if rng.random() < 0.8 else others[int(rng.integers(len(others)))]


def _said(result: Result, folder: Path) -> Iterator[tuple[str, str]]:
    """Everything that came out of a command: what it said, and what it wrote for others to see."""
    yield "output", result.stdout + result.stderr
    yield "error", repr(result.exception)
    for path in [*folder.glob("new.yaml"), *(folder / "out").rglob("*")]:
        if path.is_file():
            yield path.name, path.read_bytes().decode("utf-8", "replace")


def _check(result: Result, folder: Path) -> None:
    assert result.exit_code in {0, 1, 2}
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.stderr
    assert "a bug of ours" not in result.stderr, result.stderr
    if result.exit_code == 1:
        first, *more = result.stderr.splitlines()
        assert first.startswith("privbench: ")
        assert len(first) < 2000
        assert all(_FURTHER.match(line) for line in more), result.stderr
    for where, text in _said(result, folder):
        heard = [canary for canary in CANARIES if canary in text]
        assert heard == [], f"{where}: {text[:500]}"


@pytest.mark.parametrize("cases", [range(FEW), pytest.param(range(FEW, MANY), marks=pytest.mark.slow)], ids=str)
def test_whatever_is_broken_is_said_in_one_clear_message(
    cases: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privbench_core.pipeline.load_synthesizer", lambda _: FakeSynthesizer())
    ended, failures = [], []
    for number in cases:
        folder = tmp_path / str(number)
        folder.mkdir()
        arguments = _case(folder, number)
        result = CliRunner().invoke(app, arguments)
        try:
            _check(result, folder)
        except AssertionError as error:
            failures.append(f"case {number}, {arguments[0]}: {error}")
        ended.append(result.exit_code)
    assert not failures, "\n".join(failures)
    assert ended.count(1) > len(ended) / 3, "most of it was not broken"
    assert ended.count(0) > 0
