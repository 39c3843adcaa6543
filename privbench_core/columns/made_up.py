"""Made-up values in place of those of a learned list that too few units share to be named.

How many there are, how many rows have each, and how long they are was measured; what they look like follows from the
values that were named, character by character: a digit stands for a digit, a capital for a capital. Nothing of a value
that was not named is known here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_ROUNDS = 12  # of drawing values again that repeat another one; the later half makes them longer
_CLASSES = ("0123456789", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_DIGITS = frozenset({"zip", "zipcode", "postal", "postcode", "plz", "phone", "fax", "mobile", "number", "no", "nr"})
_TEMPLATES = 64  # named values that are imitated: the most common


@dataclass(frozen=True)
class MadeUp:
    """What was released about the values that were not named; post-processed, so that it is consistent.

    Attributes:
        numbers: Number of distinct values in each block of ranks, the most common first; at least one in all.
        rows: Rows of the values of each block.
        lengths: Rows by the length of their value: index -> rows.
        longest: Most characters of a value.
        whole: Whether values are whole numbers, in digits, none of which begins with 0.
    """

    numbers: tuple[int, ...]
    rows: tuple[float, ...]
    lengths: tuple[float, ...]
    longest: int
    whole: bool = False

    @property
    def distinct(self) -> int:
        """Number of different values."""
        return sum(self.numbers)

    def values(self, named: tuple[str, ...], where: str) -> pa.Array:
        """Return the values, the most common first: always the same ones of a column, and none of ``named``.

        Args:
            named: The values that were named.
            where: The column, as ``table.column``: another one has other values.
        """
        return pa.array(_values(self, named, where), pa.string())

    def draw(self, n: int, available: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the places of ``n`` values among the first ``available``, as often as was released.

        Systematic sampling: a value that is expected once or more occurs.
        """
        each = np.repeat(np.array(self.rows) / np.maximum(self.numbers, 1), self.numbers)[:available]
        cumulated = np.cumsum(each) / each.sum()
        places = np.searchsorted(cumulated, (np.arange(n) + rng.random()) / max(n, 1), side="right")
        return np.asarray(rng.permutation(np.minimum(places, available - 1)), np.int64)


@lru_cache(maxsize=16)
def _values(made: MadeUp, named: tuple[str, ...], where: str) -> tuple[str, ...]:
    # Fixed by what is public, so that the same values are in every block of rows, and no other column has them.
    rng = np.random.default_rng([made.distinct, len(named), *where.encode()])
    lengths = np.maximum(np.array(made.lengths), 0)
    lengths = lengths if lengths.sum() > 0 else np.append(not made.whole, np.ones(len(lengths) - 1))
    chosen = np.sort(rng.choice(len(lengths), made.distinct, p=lengths / lengths.sum()))
    found: dict[str, None] = dict.fromkeys(named)
    missing = rng.permutation(np.minimum(chosen, made.longest))
    templates = named[:_TEMPLATES] or (_usual(where),)
    if made.whole:
        templates = tuple(text.lstrip("-") for text in named[:_TEMPLATES]) or ("0",)
    for attempt in range(_ROUNDS):
        if attempt >= _ROUNDS // 2:
            missing = np.minimum(missing + 1, made.longest)
        drawn = _texts(missing, templates, rng, whole=made.whole)
        again = []
        for length, text in zip(missing.tolist(), drawn, strict=True):
            if text in found:
                again.append(length)
            else:
                found[text] = None
        missing = np.array(again, np.int64)
        if not len(missing):
            break
    fresh = tuple(found)[len(dict.fromkeys(named)) :]
    return fresh or (_texts(np.array([made.longest]), templates[:1], rng, whole=made.whole)[0],)


def _usual(where: str) -> str:
    """Return what values are like of which none was named, by the name of their column.

    >>> _usual("customer.ZipCode"), _usual("customer.city")
    ('0', 'a')
    """
    words = set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", where.rpartition(".")[2]).lower()))
    return "0" if words & _DIGITS else "a"


def _texts(
    lengths: NDArray[np.int64], named: Sequence[str], rng: np.random.Generator, *, whole: bool = False
) -> list[str]:
    """Return a text of each length in the likeness of a named value of about that length."""
    templates = [text for text in named if text] or ["a"]
    of_template = np.array([len(text) for text in templates])
    result = [""] * len(lengths)
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        near = np.flatnonzero(np.abs(of_template - length) == np.abs(of_template - length).min())
        shapes = np.array([[ord(c) for c in _stretched(templates[place], length)] for place in near.tolist()])
        drawn = shapes[rng.integers(0, len(near), len(rows))].astype(np.uint32)
        for letters in _CLASSES:
            codes = np.array([ord(letter) for letter in letters], np.uint32)
            same = np.isin(drawn, codes)
            drawn[same] = codes[rng.integers(0, len(codes), int(same.sum()))]
        if whole:
            drawn[:, 0] = ord("1") + rng.integers(0, 9, len(rows))
        texts = np.ascontiguousarray(drawn).view(f"<U{length}").ravel().tolist()
        for row, text in zip(rows.tolist(), texts, strict=True):
            result[row] = text
    return result


def _stretched(text: str, length: int) -> str:
    """Return ``text`` cut, or with its last letter or digit repeated, to a length."""
    last = next((c for c in reversed(text) if c.isalnum()), "a")
    return text[:length] + last * (length - len(text))
