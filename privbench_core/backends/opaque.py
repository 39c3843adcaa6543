"""Values that are carried but hardly looked at: UUIDs and bytes, from whatever a source stores."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_UUID = r"^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"
_WIDTH = 36  # characters of a UUID as text
_DIGITS = [place for place in range(_WIDTH) if place not in {8, 13, 18, 23}]
_HEX = r"^\\x([0-9a-fA-F]{2})*$"


def uuid_text(raw: NDArray[np.uint8]) -> pa.Array:
    """The text of UUIDs.

    Args:
        raw: Their bytes, shape (n, 16).

    Returns:
        Lower-case text with hyphens, shape (n,).
    """
    text = np.full((len(raw), _WIDTH), ord("-"), np.uint8)
    text[:, _DIGITS] = np.frombuffer(raw.tobytes().hex().encode(), np.uint8).reshape(-1, 32)
    offsets = np.arange(len(raw) + 1, dtype=np.int64) * _WIDTH
    large = pa.Array.from_buffers(pa.large_string(), len(raw), [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return large.cast(pa.string())


def uuids(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """UUIDs as canonical text, from text (braces, a missing hyphen and capitals are put right) or 16 bytes.

    Raises:
        ArrowInvalid: A value is none.
    """
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _from_text(values.cast(pa.string()))
    return pa.chunked_array([_from_bytes(chunk.cast(pa.binary(16))) for chunk in values.chunks], pa.string())


def as_bytes(values: pa.ChunkedArray) -> pa.ChunkedArray:
    r"""Bytes as they are; text in PostgreSQL's hexadecimal form (``\x6869``) is read as such, other text as UTF-8.

    Raises:
        ArrowInvalid: The values are neither bytes nor text.
    """
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        hexadecimal = pc.match_substring_regex(values, _HEX)
        if values.null_count < len(values) and pc.all(hexadecimal).as_py():
            texts = values.to_pylist()
            return pa.chunked_array([pa.array([text and bytes.fromhex(text[2:]) for text in texts], pa.binary())])
    return values.cast(pa.binary())


def _from_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    plain = pc.utf8_lower(pc.utf8_trim(values, characters=" {}\t"))
    plain = pc.if_else(pc.equal(plain, ""), pa.scalar(None, pa.string()), plain)
    if pc.all(pc.match_substring_regex(plain, _UUID)).as_py() is False:
        raise pa.ArrowInvalid("no UUID")
    digits = pc.replace_substring(plain, "-", "")
    cuts = (0, 8, 12, 16, 20, 32)
    parts = (pc.utf8_slice_codeunits(digits, start, stop) for start, stop in pairwise(cuts))
    return pc.binary_join_element_wise(*parts, "-")


def _from_bytes(values: pa.Array) -> pa.Array:
    null = pc.is_null(values).to_numpy(zero_copy_only=False)
    whole = values.fill_null(bytes(16))
    raw = np.frombuffer(whole.buffers()[1], np.uint8, 16 * len(whole), 16 * whole.offset).reshape(-1, 16)
    return pc.if_else(pa.array(null), pa.scalar(None, pa.string()), uuid_text(raw))
