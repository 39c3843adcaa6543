"""Values without significant counts: plausible bounds of a range, and made-up values of a learned list.

Bounds follow from the type and name of a column: the first words that fit the name decide. They were chosen by hand,
wide enough to hold common values and narrow enough that no value is absurd.

A value that too few units share to be named is made up. How many there are, how many rows have each, and how long they
are was measured; their form follows from the values that were named, character by character: a digit stands
for a digit, a capital vowel for a capital vowel. Nothing of a value that was not named is known here.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_lowercase, digits

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.grid import Grid
from privbench_core.columns.surrogates import draw_faker_text
from privbench_core.guards import REDRAWING_ROUNDS
from privbench_core.schema.columns import Column, Scalar
from privbench_core.stored import Storable
from privbench_core.tuning import TUNING

_VOWELS = "aeiou"
_CONSONANTS = "".join(letter for letter in ascii_lowercase if letter not in _VOWELS)
_ALIKE = (digits, _VOWELS, _CONSONANTS, _VOWELS.upper(), _CONSONANTS.upper())
"""Characters that stand for each other: made-up words can be pronounced as well as those that they imitate."""
_RARE = frozenset("jkqvwxyzJKQVWXYZ")
"""Letters that are rare in words: only codes, which are all in capitals, get them."""
_WORD = re.compile(r"\b[^\W\d_]{2,}\b")
_PROVIDERS = {
    "city|town": "city",
    "company|employer|organization|organisation": "company",
    "job|occupation|profession": "job",
    "street": "street_name",
}
"""Providers of the Faker library by the last word of what columns are called, but for name and title."""
LIKE_FORMS = (), ("0",), tuple(f"{'0' * digits}.00" for digits in range(1, 10))
"""What values of each form of `FormCodec` are like. The first form says nothing of them."""
_NUMBERS = {
    "age": (0, 100),
    "year|yr": (1950, 2030),
    "month": (1, 12),
    "day|days": (0, 31),
    "hour|hours": (0, 24),
    "lat|latitude": (-90, 90),
    "lon|lng|long|longitude": (-180, 180),
    "percent|percentage|pct|share|discount|rate|score": (0, 100),
    "qty|quantity|count|number|num|units|stock": (0, 100),
    "salary|income|wage|budget|revenue": (0, 200_000),
}
_BIRTH = r"birth|born|dob|birthday|birthdate"
_SPANS = {"birth": ("1930-01-01", "2015-12-31"), "other": ("2000-01-01", "2030-12-31")}


@dataclass(frozen=True)
class MadeUp(Storable):
    """What was released about the values that were not named; post-processed, so that it is consistent.

    Attributes:
        numbers: Number of distinct values in each block of ranks, the most common first; at least one in all.
        rows: Rows of the values of each block.
        lengths: Rows by the length of their value: index -> rows.
        longest: Most characters of a value.
        whole: Whether values are whole numbers, in digits, none of which begins with 0.
        hidden: Whether noise hid their rows, so that they occur only if counts of the column's cells show them.
        like: What values are like of which none was named, if that was measured.
    """

    numbers: tuple[int, ...]
    rows: tuple[float, ...]
    lengths: tuple[float, ...]
    longest: int
    whole: bool = False
    hidden: bool = False
    like: tuple[str, ...] = ()

    @property
    def distinct(self) -> int:
        """Number of different values."""
        return sum(self.numbers)

    def values(self, named: tuple[str, ...], where: str) -> pa.Array:
        """Return the values, the most common first: always the same of a column (``where``), and none of ``named``."""
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
    rows = np.maximum(np.array(made.lengths), 0)
    rows = rows if rows.sum() > 0 else np.append(not made.whole, np.ones(len(rows) - 1))
    chosen = np.sort(rng.choice(len(rows), made.distinct, p=rows / rows.sum()))
    lengths = rng.permutation(np.minimum(chosen, made.longest))
    imitated = [text for name in named if (text := name.lstrip("-") if made.whole else name)]
    whole = made.whole or (not named and bool(made.like))
    known = () if named or made.like or made.whole else _known(where, made, rng)
    found: dict[str, None] = dict.fromkeys((*named, *known))
    lengths = lengths[len(known) :]
    imitated = imitated or [*known] or [*made.like] or ["0" if made.whole else _usual(where)]
    for attempt in range(REDRAWING_ROUNDS):  # values that repeat another one are drawn again, at last longer ones
        repeated = []
        for length, text in zip(lengths.tolist(), _texts(lengths, imitated, rng, whole=whole), strict=True):
            if text in found:
                repeated.append(length)
            found[text] = None
        lengths = np.minimum(np.array(repeated, np.int64) + (2 * attempt >= REDRAWING_ROUNDS), made.longest)
    fresh = tuple(found)[len(set(named)) :]
    return fresh or tuple(_texts(np.array([made.longest]), imitated[:1], rng, whole=whole))


def _known(where: str, made: MadeUp, rng: np.random.Generator) -> list[str]:
    """Return different values of what a column is called, at most as many as it has, if a library knows some."""
    name = _separated(where.rpartition(".")[2])
    for names, provider in _PROVIDERS.items():
        if re.search(rf"(^|[_\W])({names})([_\W](name|title))?\d*$", name):
            texts = draw_faker_text(provider, made.distinct, sys.maxsize, rng)
            return [*dict.fromkeys(text for text in texts if len(text) <= made.longest)]
    return []


def _usual(where: str) -> str:
    """Return what values are like of which none was named, by the name of their column; the begin of a long one.

    >>> _usual("customer.ZipCode"), _usual("patient.age"), _usual("customer.segment")[:10]
    ('0', '0', 'Banalen da')
    """
    in_digits = {"zip", "zipcode", "postal", "postcode", "plz", "phone", "fax", "mobile", "no", "nr"}
    in_digits.update(*(names.split("|") for names in _NUMBERS))
    return "0" if words_of(where.rpartition(".")[2]) & in_digits else "Banalen dan maron calabaten ad " * 10


def _texts(lengths: NDArray[np.int64], imitated: Sequence[str], rng: np.random.Generator, *, whole: bool) -> list[str]:
    """Return a text of each length in the likeness of one of about that length."""
    known = np.array([len(text) for text in imitated])
    words = Counter(word for text in imitated for word in {*_WORD.findall(text)})
    in_several = {word for word, number in words.items() if number > 1}
    unlikely = _RARE if any(map(str.islower, "".join(imitated))) else frozenset[str]()
    result = [""] * len(lengths)
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows, off = np.flatnonzero(lengths == length), np.abs(known - length)
        near = [_stretched(imitated[place], length) for place in np.flatnonzero(off == off.min()).tolist()]
        forms = np.array([[*map(ord, text)] for text in near], np.uint32)
        chosen = rng.integers(0, len(near), len(rows))
        characters = forms[chosen]
        # What all have in common stays, as DX in DX250, if that is no accident; so do words that several values have.
        common = (forms == forms[0]).all(axis=0) & (off.min() == 0 and 10.0 ** (1 - len(near)) < TUNING.clear)
        stays = np.array([common | _is_in(text, in_several) for text in near])
        stays &= float(len(_VOWELS)) ** (~stays).sum(axis=1, keepdims=True) > len(near) + len(rows)  # leaves enough
        for letters in _ALIKE:
            codes = np.array([ord(letter) for letter in letters if letter not in unlikely], np.uint32)
            same = np.isin(characters, np.array([*map(ord, letters)], np.uint32)) & ~stays[chosen]
            characters[same] = codes[rng.integers(0, len(codes), int(same.sum()))]
        if whole and not common[0]:
            characters[:, 0] = ord("1") + rng.integers(0, 9, len(rows))
        texts = np.ascontiguousarray(characters).view(f"<U{length}").ravel().tolist()
        for row, text in zip(rows.tolist(), texts, strict=True):
            result[row] = text
    return result


def _is_in(text: str, words: Collection[str]) -> NDArray[np.bool_]:
    """Return which characters of a text are in one of some words, shape (characters,)."""
    found = np.zeros(len(text), bool)
    for match in _WORD.finditer(text):
        found[match.start() : match.end()] = match[0] in words
    return found


def _stretched(text: str, length: int) -> str:
    """Return ``text`` cut, or with its last two letters or digits repeated, to a length; it does not end with a blank.

    >>> _stretched("St. Paul", 4), _stretched("Houston.", 12)
    ('St.u', 'Houston.onon')
    """
    last = re.search(r"([^\W_]{1,2})[\W_]*$", text)
    return (text[:length].rstrip() + (last[1] if last else "a") * length)[:length]


def plausible_bounds(column: Column) -> tuple[Scalar, Scalar]:
    """Return the smallest and largest plausible value of an ordered column.

    >>> from privbench_core.schema.columns import ColumnType
    >>> plausible_bounds(Column("birthDate", ColumnType.DATE)), plausible_bounds(Column("age", ColumnType.INTEGER))
    (('1930-01-01', '2015-12-31'), (0, 100))
    """
    words = words_of(column.name)
    logical = column.logical
    if logical.calendar:
        low, high = _SPANS["birth" if words & set(_BIRTH.split("|")) else "other"]
        zone = "Z" if str(column.type) == "timestamptz" else ""
        return (low, high) if str(column.type) == "date" else (f"{low}T00:00:00{zone}", f"{high}T00:00:00{zone}")
    if not logical.numeric:
        return "PT0S", "P1D" if column.relative is None else "P30D"  # between two times lie days
    if column.written_dates:
        return 20000101, 20301231
    fitting = (bounds for names, bounds in _NUMBERS.items() if words & set(names.split("|")))
    first, last = next(fitting, (0, 1000))
    grid = Grid.of(column)
    if not grid.continuous:
        most = int(grid.extent[1] // 10 ** (column.scale or 0))
        first, last = max(first, -most), min(last, most)
    return first, last


def words_of(name: str) -> set[str]:
    """Return the words of a name, like birth and date of ``birthDate_2``."""
    return set(re.findall(r"[a-z]+", _separated(name)))


def _separated(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
