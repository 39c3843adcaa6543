"""What a step leaves behind: plain data, perhaps with a table, as bytes that are the same whenever the content is."""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
import weakref
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privbench_core.errors import ReleaseError
from privbench_core.files import write_durably
from privbench_core.guards import DIGEST_BYTES
from privbench_core.publishing.table_files import write_rows

_MAGIC = b"PRIVBENCH1"
_HEADER = len(_MAGIC) + DIGEST_BYTES
_DAMAGED = "a stored result is damaged or was not written by privbench; delete the file, and it is made again"
_NUMBERS = frozenset("biuf")  # kinds of arrays that are stored as they stand in memory
_CODEC = pa.Codec("zstd", compression_level=1)


@dataclass(frozen=True)
class Artifact:
    """The result of a step.

    Attributes:
        data: JSON-able values; numpy arrays are allowed anywhere and come back as arrays.
        table: Rows, where the step makes rows, and makes them in one piece.
        parts: Where the rows are that it makes range by range.
    """

    data: dict[str, Any] = field(default_factory=dict)
    table: pa.Table | None = None
    parts: PartFiles | None = field(default=None, repr=False, compare=False)

    def to_bytes(self) -> bytes:
        """Serialise deterministically: a header with a checksum, JSON, large arrays compressed, Parquet for a table."""
        arrays: list[pa.Buffer] = []
        text = json.dumps(self.data, default=partial(_plain, arrays), sort_keys=True, separators=(",", ":")).encode()
        parts = [struct.pack("<Q", len(text)), text, *arrays]
        if self.table is not None:
            sink = pa.BufferOutputStream()
            write_rows(sink, self.table)
            parts.append(sink.getvalue())
        digest = blake2b(digest_size=DIGEST_BYTES)
        for part in parts:
            digest.update(part)
        return b"".join([_MAGIC, digest.digest(), *parts])

    @classmethod
    def from_bytes(cls, stored: bytes, parts: PartFiles | None = None) -> Artifact:
        """Return the inverse of `to_bytes`, but for ``parts``, which are files; raises as `verified` does."""
        return cls._decoded(verified(stored), parts)

    @classmethod
    def _decoded(cls, content: memoryview, parts: PartFiles | None = None) -> Artifact:
        """Return the artifact of what stands behind a header that is known to be right."""
        text, rest = _split(content)
        data = json.loads(text, object_hook=rest.array)
        body = rest.content[rest.read :]
        return cls(data, pq.read_table(pa.BufferReader(body)) if body else None, parts)


@dataclass(frozen=True)
class PartFiles:
    """Rows that a step makes range by range: a file for each range, which says itself whether it is whole.

    A step that was killed finds what it had finished. What is finished is listed in the step's artifact by digest.

    Attributes:
        folder: Made with the first file.
    """

    folder: Path

    @classmethod
    def temporary(cls) -> PartFiles:
        """Return files for a step whose result is not kept: they go with this object."""
        files = cls(Path(tempfile.gettempdir()) / f"privbench-{uuid4().hex}")
        weakref.finalize(files, shutil.rmtree, files.folder, ignore_errors=True)
        return files

    def put(self, number: int, part: Artifact) -> str:
        """Store a part durably and return its digest.

        Raises:
            ReleaseError: There is no room, or no permission; nothing of the part is left.
        """
        stored = part.to_bytes()
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_durably(self._path(number), stored)
        except OSError as error:
            raise ReleaseError(
                f"the rows of a range could not be stored: {error.strerror}. Make room, then run again: what is"
                " finished is kept"
            ) from error
        return digest_of(stored)

    def get(self, number: int, digest: str) -> Artifact:
        """Read a part.

        Raises:
            ReleaseError: It is missing, or not what was stored.
        """
        return Artifact._decoded(self._read(number, digest))

    def rows_file(self, number: int, digest: str) -> memoryview:
        """Read the rows of a part as they are stored, as a Parquet file; raises as `get` does."""
        text, rest = _split(self._read(number, digest))
        json.loads(text, object_hook=rest.skip)
        return rest.content[rest.read :]

    def _read(self, number: int, digest: str) -> memoryview:
        path = self._path(number)
        if not path.is_file():
            raise ReleaseError(f"{path}: missing; run again to draw it again, at no cost")
        stored = path.read_bytes()
        if digest_of(stored) != digest:
            raise ReleaseError(f"{path}: does not match its checksum; delete it and run again to draw it again")
        return memoryview(stored)[_HEADER:]

    def finished(self, number: int) -> tuple[str, Artifact] | None:
        """Return digest and content of a part that an earlier run has finished; None if there is none, or half a one.

        Damaged files are deleted.
        """
        path = self._path(number)
        if not path.is_file():
            return None
        stored = path.read_bytes()
        try:
            return digest_of(stored), Artifact.from_bytes(stored)
        except ReleaseError:
            path.unlink()
            return None

    def has(self, number: int) -> bool:
        """Return whether there is a file of that number, whole or not."""
        return self._path(number).is_file()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.bin"


def verified(stored: bytes) -> memoryview:
    """Return what stands behind the header; ReleaseError if `Artifact.to_bytes` did not make these bytes, or not so."""
    content, digest = memoryview(stored)[_HEADER:], stored[len(_MAGIC) : _HEADER]
    if not stored.startswith(_MAGIC) or blake2b(content, digest_size=DIGEST_BYTES).digest() != digest:
        raise ReleaseError(_DAMAGED)
    return content


def _split(content: memoryview) -> tuple[bytes, _Rest]:
    """Return JSON, and what follows it."""
    (length,) = struct.unpack("<Q", content[:8])
    return bytes(content[8 : 8 + length]), _Rest(content[8 + length :])


def listed_parts(stored: bytes) -> int:
    """Return how many ranges of rows an artifact lists under ``parts``, without reading the rest of it."""
    return len(json.loads(_split(verified(stored))[0]).get("parts", ()))


@dataclass
class _Rest:
    """What follows the JSON: large arrays in the order in which the JSON names them, then Parquet."""

    content: memoryview
    read: int = 0

    def skip(self, value: dict[str, Any]) -> object:
        """Skip an array."""
        self.read += value["bytes"] if "__array__" in value and "values" not in value else 0
        return value

    def array(self, value: dict[str, Any]) -> object:
        """Return the array that a JSON object stands for; any other object as it is."""
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
    """Return the checksum of stored bytes, as hexadecimal text."""
    return blake2b(stored, digest_size=DIGEST_BYTES).hexdigest()


def _plain(arrays: list[pa.Buffer], value: object) -> object:
    if isinstance(value, np.ndarray):
        described = {"__array__": str(value.dtype), "shape": list(value.shape)}
        # More values take several times their room as text.
        if value.size <= 1 << 12 or value.dtype.kind not in _NUMBERS:
            return {**described, "values": value.ravel().tolist()}
        arrays.append(_CODEC.compress(np.ascontiguousarray(value)))
        return {**described, "bytes": arrays[-1].size}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored in an artifact")
