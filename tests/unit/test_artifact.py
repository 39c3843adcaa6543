"""What a step leaves behind, as bytes: large arrays stand in them compressed; older results are still understood."""

from __future__ import annotations

import json
import struct
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import ReleaseError
from privbench_core.synthesizers.artifact import Artifact, verified

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
