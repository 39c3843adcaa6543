"""What a step leaves behind: plain data, perhaps with a table, as bytes that are the same whenever the content is."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privbench_core.errors import ReleaseError

_MAGIC = b"PRIVBENCH1"
_DIGEST = 20  # bytes


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
        """Deterministic serialisation: a header with a checksum, JSON, and Parquet where there is a table."""
        text = json.dumps(self.data, default=_plain, sort_keys=True, separators=(",", ":")).encode()
        body = b""
        if self.table is not None:
            sink = pa.BufferOutputStream()
            pq.write_table(self.table, sink, compression="zstd")
            body = sink.getvalue().to_pybytes()
        content = struct.pack("<Q", len(text)) + text + body
        return _MAGIC + blake2b(content, digest_size=_DIGEST).digest() + content

    @classmethod
    def from_bytes(cls, stored: bytes) -> Artifact:
        """The inverse of `to_bytes`; ReleaseError if these are not such bytes, or no longer."""
        start = len(_MAGIC) + _DIGEST
        content = stored[start:]
        if (
            not stored.startswith(_MAGIC)
            or blake2b(content, digest_size=_DIGEST).digest() != stored[len(_MAGIC) : start]
        ):
            raise ReleaseError(
                "a stored result is damaged, or none of privbench's; delete the file to have it made again"
            )
        (length,) = struct.unpack("<Q", content[:8])
        data = json.loads(content[8 : 8 + length], object_hook=_arrays)
        body = content[8 + length :]
        return cls(data, pq.read_table(pa.BufferReader(body)) if body else None)


def digest_of(stored: bytes) -> str:
    """Checksum of stored bytes, as hexadecimal text."""
    return blake2b(stored, digest_size=_DIGEST).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return {"__array__": str(value.dtype), "shape": list(value.shape), "values": value.ravel().tolist()}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored in an artifact")


def _arrays(value: dict[str, Any]) -> object:
    if "__array__" in value:
        return np.array(value["values"], dtype=value["__array__"]).reshape(value["shape"])
    return value
