"""Random text that matches a regular expression, whole columns at a time.

Python's own parser reads the expression, so it means here what it means to `re`. Each part of it is drawn for all rows
at once: a part that repeats is drawn as often as all rows need it, then distributed. (Libraries that do this go value
by value, a thousand times as slow, and their draws depend on the order of Python's sets, so a seed would not fix them.)
Any character means a printable one of ASCII, and repetition without end up to `REPETITIONS` times more than it must.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from string import ascii_letters, digits, punctuation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.errors import SpecError
from privbench_core.guards import REDRAWING_ROUNDS, REPETITIONS, TRIED_TEXTS

_DIGITS = frozenset(digits)
_WORD = frozenset(f"{ascii_letters}{digits}_")
_PRINTABLE = _WORD | frozenset(f"{punctuation} ")
_CATEGORIES = {
    sre.CATEGORY_DIGIT: _DIGITS,
    sre.CATEGORY_NOT_DIGIT: _PRINTABLE - _DIGITS,
    sre.CATEGORY_WORD: _WORD,
    sre.CATEGORY_NOT_WORD: _PRINTABLE - _WORD,
    sre.CATEGORY_SPACE: frozenset(" "),
    sre.CATEGORY_NOT_SPACE: _PRINTABLE - {" "},
}
_ENDS = {sre.AT_BEGINNING, sre.AT_BEGINNING_STRING, sre.AT_END, sre.AT_END_STRING}
_REPEATS = {sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT}


def check_regex(regex: str, max_length: int, where: str) -> None:
    """Refuse an expression that no text can be made for.

    Raises:
        SpecError: It cannot be parsed, holds a construct that cannot be made by drawing (look-around, references to
            groups, word boundaries), or makes no text of at most ``max_length`` characters.
    """
    try:
        pattern = re.compile(regex)
    except re.error as error:
        raise SpecError(f"{where}: the pattern {regex!r} is no regular expression ({error}); correct it") from None
    try:
        made = draw_matching(regex, TRIED_TEXTS, max_length, np.random.default_rng(0)).to_pylist()
    except _UnfollowableError as error:
        todo = "write it with classes, groups, alternatives and repetition alone"
        raise SpecError(f"{where}: the pattern {regex!r} holds {error}; {todo}") from None
    if not made:
        found = f"makes no text of at most {max_length} characters"
        raise SpecError(f"{where}: the pattern {regex!r} {found}; shorten it or raise max_length")
    if not all(pattern.fullmatch(text) for text in made):
        found = "asks for the beginning or end of the text in its middle, or repeats without giving back"
        raise SpecError(f"{where}: the pattern {regex!r} {found}; write it without")


def draw_matching(regex: str, n: int, max_length: int, rng: np.random.Generator) -> pa.Array:
    """Return random texts that match in full.

    Args:
        regex: An expression that `check_regex` lets pass.
        n: How many.
        max_length: Most characters of a text.
        rng: Sampling only.

    Returns:
        Text, shape (n,); shape (0,) if none is short enough.

    >>> draw_matching("[a-c]{2}", 3, 9, np.random.default_rng(0)).to_pylist()
    ['cb', 'ba', 'aa']
    """
    parsed, made = _parser.parse(regex), pa.array([], pa.string())
    for _ in range(1 + REDRAWING_ROUNDS):  # what is too long is drawn again, and becomes a copy of another at last
        made = pa.concat_arrays([made, _draw(parsed, n - len(made), max_length, rng)])
        made = made.filter(pc.less_equal(pc.utf8_length(made), max_length))
        if len(made) == n:
            return made
    return made.take(pa.array(rng.integers(0, len(made), n))) if len(made) else made


class _UnfollowableError(Exception):
    """A construct that only matching can decide."""


def _draw(parsed: Any, n: int, room: int, rng: np.random.Generator) -> pa.Array:
    """Texts for a sequence of parts, which should leave ``room``: repetition goes no further."""
    least = parsed.getwidth()[0]
    parts = []
    for position, (kind, value) in enumerate(parsed):
        own = parsed[position : position + 1].getwidth()[0]
        parts.append(_part(kind, value, n, room - least + own, rng))
    if not parts:
        return pa.repeat("", n)
    return pc.binary_join_element_wise(*parts, "")


def _part(kind: Any, value: Any, n: int, room: int, rng: np.random.Generator) -> pa.Array:
    if kind is sre.LITERAL:
        return pa.repeat(chr(value), n)
    if kind is sre.IN or kind is sre.ANY or kind is sre.NOT_LITERAL:
        return _characters(_listed(kind, value), n, rng)
    if kind is sre.BRANCH:
        return _branches(value[1], n, room, rng)
    if kind is sre.SUBPATTERN or kind is sre.ATOMIC_GROUP:
        return _draw(value[-1] if kind is sre.SUBPATTERN else value, n, room, rng)
    if kind in _REPEATS:
        return _repeated(value, n, room, rng)
    if kind is sre.AT and value in _ENDS:
        return pa.repeat("", n)
    raise _UnfollowableError("look-around, a reference to a group or a word boundary")


def _listed(kind: Any, value: Any) -> frozenset[str]:
    if kind is sre.ANY:
        return _PRINTABLE
    if kind is sre.NOT_LITERAL:
        return _PRINTABLE - {chr(value)}
    negated = value[0][0] is sre.NEGATE
    found = frozenset[str]().union(*(_members(*member) for member in value[1 if negated else 0 :]))
    return _PRINTABLE - found if negated else found


def _members(kind: Any, value: Any) -> Iterable[str]:
    if kind is sre.LITERAL:
        return chr(value)
    if kind is sre.RANGE:
        return map(chr, range(value[0], value[1] + 1))
    return _CATEGORIES[value]


def _characters(listed: frozenset[str], n: int, rng: np.random.Generator) -> pa.Array:
    # No database takes a zero byte in text, and no encoding a lone surrogate.
    usable = sorted(character for character in listed if character != "\0" and not "\ud800" <= character <= "\udfff")
    if not usable:
        raise _UnfollowableError("a class without a printable character")
    return pa.array(usable, pa.string()).take(pa.array(rng.integers(0, len(usable), n)))


def _branches(options: Sequence[Any], n: int, room: int, rng: np.random.Generator) -> pa.Array:
    choice = rng.integers(0, len(options), n)
    rows = [np.flatnonzero(choice == option) for option in range(len(options))]
    made = [_draw(option, len(mine), room, rng) for option, mine in zip(options, rows, strict=True)]
    return pa.concat_arrays(made).take(pa.array(np.argsort(np.concatenate(rows))))


def _repeated(value: tuple[int, int, Any], n: int, room: int, rng: np.random.Generator) -> pa.Array:
    low, high, repeated = value
    width = max(1, repeated.getwidth()[0])
    most = low + REPETITIONS if high is sre.MAXREPEAT else high
    most = max(low, min(most, room // width))
    times = rng.integers(low, most + 1, n)
    offsets = np.append(0, np.cumsum(times)).astype(np.int32)
    pieces = _draw(repeated, int(offsets[-1]), max(width, room // max(1, most)), rng)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), pieces), "")
