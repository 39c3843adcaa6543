"""What a step leaves behind, as bytes: large arrays stand in them compressed; older results are still understood."""

from __future__ import annotations

import json
import struct
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privbench_core.errors import ReleaseError
from privbench_core.publishing.table_files import write_rows
from privbench_core.synthesizers.artifact import Artifact, PartFiles, verified

_LARGE = 10_000


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "whole": rng.integers(-(1 << 60), 1 << 60, _LARGE),
        "small type": rng.integers(0, 200, (100, 200)).astype(np.uint8),
        "not contiguous": rng.random((100, 100)).T[::2],
        "odd numbers": np.resize(np.array([np.nan, -0.0, np.inf]), _LARGE),
        "flags": rng.random(_LARGE) < 0.5,
        "other order of bytes": rng.random(_LARGE).astype(">f4"),
        "texts": np.resize(np.array(["a", "bc"]), _LARGE),
        "none": np.zeros((0, 3)),
        "few": np.arange(3, dtype=np.int16),
    }


def test_arrays_of_any_size_and_type_come_back(arrays: dict[str, np.ndarray]) -> None:
    table = pa.table({"x": pa.chunked_array([[1], [2, None]])})
    stored = Artifact({"all": [{"of": [name, values]} for name, values in arrays.items()]}, table).to_bytes()
    back = Artifact.from_bytes(stored)
    assert back.to_bytes() == stored
    for item in back.data["all"]:
        name, values = item["of"]
        assert values.dtype == arrays[name].dtype, name
        assert values.shape == arrays[name].shape, name
        assert values.tobytes() == np.ascontiguousarray(arrays[name]).tobytes(), name
        values[...] = values[...]  # may be written to
    assert back.table is not None
    assert back.table["x"].to_pylist() == [1, 2, None]


def test_a_large_array_takes_no_more_room_than_in_memory() -> None:
    values = np.random.default_rng(0).random(_LARGE)
    assert len(Artifact({"a": values}).to_bytes()) < 1.01 * values.nbytes + 200
    values = np.repeat(np.arange(100), 1000)
    assert len(Artifact({"a": values}).to_bytes()) < values.nbytes / 10


def test_results_that_hold_large_arrays_as_text_are_still_read() -> None:
    values = list(range(_LARGE))
    text = json.dumps({"a": {"__array__": "int64", "shape": [_LARGE], "values": values}}).encode()
    content = struct.pack("<Q", len(text)) + text
    old = b"PRIVBENCH1" + blake2b(content, digest_size=20).digest() + content
    assert Artifact.from_bytes(old).data["a"].tolist() == values


@pytest.mark.parametrize("place", [0, 12, 40, -1])
def test_a_changed_byte_is_noticed(place: int) -> None:
    stored = bytearray(Artifact({"a": np.arange(_LARGE)}, pa.table({"x": [1]})).to_bytes())
    assert Artifact.from_bytes(verified_copy := bytes(stored)).table is not None
    assert len(verified(verified_copy)) < len(stored)
    stored[place] ^= 1
    for read in (Artifact.from_bytes, verified):
        with pytest.raises(ReleaseError, match="damaged"):
            read(bytes(stored))


def test_the_rows_of_a_part_are_read_without_what_lies_before_them(tmp_path: Path) -> None:
    rows = pa.table({"id": np.arange(5), "x": pa.array([1, None, 3, 2, 2])})
    content = {"long": [np.arange(9000), {"again": np.zeros((70, 80))}], "short": np.arange(3), "bytes": 7}
    parts = PartFiles(tmp_path)
    digest = parts.put(3, Artifact(content, rows))
    file = parts.rows_file(3, digest)
    assert pq.read_table(pa.BufferReader(file)).equals(rows)
    alone = pa.BufferOutputStream()
    write_rows(alone, rows)
    assert bytes(file) == alone.getvalue().to_pybytes()
    whole = (tmp_path / "00003.bin").read_bytes()
    (tmp_path / "00003.bin").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ReleaseError, match="does not match its checksum"):
        parts.rows_file(3, digest)


@pytest.mark.parametrize("values", [[3, 1, 2], [1, None, 2], [], [2, 2, 5]])
def test_the_same_rows_have_the_same_file_whatever_chunks_they_are_in(values: list[int | None]) -> None:
    rows = pa.table({"n": pa.array(values, pa.int64()), "t": pa.array([str(value) for value in values])})
    chunked = pa.concat_tables([rows.slice(0, 1), rows.slice(1)])
    found = []
    for each in (rows, chunked, rows.replace_schema_metadata({"of": "another program"})):
        sink = pa.BufferOutputStream()
        write_rows(sink, each)
        found.append(sink.getvalue().to_pybytes())
        assert pq.read_table(pa.BufferReader(found[-1])).equals(rows)
    assert len(set(found)) == 1
