"""What a step leaves behind: plain data, perhaps with a table, as bytes that are the same whenever the content is."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privbench_core.errors import ReleaseError

_MAGIC = b"PRIVBENCH1"
_DIGEST = 20  # bytes
_DAMAGED = "a stored result is damaged, or none of privbench's; delete the file to have it made again"
_INLINE = 1 << 12  # values that an array may have to stand in the JSON; as text it takes several times its room
_NUMBERS = frozenset("biuf")  # kinds of arrays that are stored as they stand in memory
_CODEC = pa.Codec("zstd", compression_level=1)


@dataclass(frozen=True)
class Artifact:
    """The result of a step.

    Attributes:
        data: JSON-able values; numpy arrays are allowed anywhere and come back as arrays.
        table: Rows, where the step makes rows.
    """

    data: dict[str, Any] = field(default_factory=dict)
    table: pa.Table | None = None

    def to_bytes(self) -> bytes:
        """Deterministic serialisation: a header with a checksum, JSON, large arrays compressed, Parquet for a table."""
        arrays: list[pa.Buffer] = []
        text = json.dumps(self.data, default=partial(_plain, arrays), sort_keys=True, separators=(",", ":")).encode()
        parts = [struct.pack("<Q", len(text)), text, *arrays]
        if self.table is not None:
            sink = pa.BufferOutputStream()
            pq.write_table(self.table, sink, compression="zstd")
            parts.append(sink.getvalue())
        digest = blake2b(digest_size=_DIGEST)
        for part in parts:
            digest.update(part)
        return b"".join([_MAGIC, digest.digest(), *parts])

    @classmethod
    def from_bytes(cls, stored: bytes) -> Artifact:
        """The inverse of `to_bytes`; raises as `verified` does."""
        content = verified(stored)
        (length,) = struct.unpack("<Q", content[:8])
        rest = _Rest(content[8 + length :])
        data = json.loads(bytes(content[8 : 8 + length]), object_hook=rest.array)
        body = rest.content[rest.read :]
        return cls(data, pq.read_table(pa.BufferReader(body)) if body else None)


def verified(stored: bytes) -> memoryview:
    """What stands behind the header; ReleaseError if `Artifact.to_bytes` did not make these bytes, or not so."""
    start = len(_MAGIC) + _DIGEST
    content = memoryview(stored)[start:]
    right = stored.startswith(_MAGIC) and blake2b(content, digest_size=_DIGEST).digest() == stored[len(_MAGIC) : start]
    if not right:
        raise ReleaseError(_DAMAGED)
    return content


@dataclass
class _Rest:
    """What follows the JSON: large arrays in the order in which the JSON names them, then Parquet."""

    content: memoryview
    read: int = 0

    def array(self, value: dict[str, Any]) -> object:
        """The array that a JSON object stands for; any other object as it is."""
        if "__array__" not in value:
            return value
        dtype, shape = np.dtype(value["__array__"]), value["shape"]
        if "values" in value:
            return np.array(value["values"], dtype=dtype).reshape(shape)
        stored = self.content[self.read : self.read + value["bytes"]]
        self.read += value["bytes"]
        values = np.empty(shape, dtype)
        with pa.CompressedInputStream(pa.BufferReader(stored), _CODEC.name) as stream:
            if stream.readinto(values.data.cast("B")) != values.nbytes:
                raise ReleaseError(_DAMAGED)
        return values


def digest_of(stored: bytes) -> str:
    """Checksum of stored bytes, as hexadecimal text."""
    return blake2b(stored, digest_size=_DIGEST).hexdigest()


def _plain(arrays: list[pa.Buffer], value: object) -> object:
    if isinstance(value, np.ndarray):
        described = {"__array__": str(value.dtype), "shape": list(value.shape)}
        if value.size <= _INLINE or value.dtype.kind not in _NUMBERS:
            return {**described, "values": value.ravel().tolist()}
        arrays.append(_CODEC.compress(np.ascontiguousarray(value)))
        return {**described, "bytes": arrays[-1].size}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored in an artifact")
