"""Codec of generated text: of the source's values only NULL is encoded, and values follow a public rule.

The rule is a regular expression, a provider of the Faker library (names, addresses, phone numbers), or that of UUIDs.
Python's own parser reads an expression, so it means here what it means to `re`. Each part of it is drawn for all rows
at once: a part that repeats is drawn as often as all rows need it, then distributed. (Libraries that do this go value
by value, a thousand times as slow, and their draws depend on the order of Python's sets, so a seed would not fix them.)
Any character means a printable one of ASCII, and repetition without end up to ten times more than it must.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from string import ascii_letters, digits, punctuation
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.columns.codec import Codec, Codes, null_mask, wrong_type
from privbench_core.columns.grid import qualified
from privbench_core.columns.opaque import length_limit
from privbench_core.errors import SpecError, did_you_mean
from privbench_core.guards import REDRAWING_ROUNDS
from privbench_core.schema.columns import Column, Pattern
from privbench_core.schema.types.arrow import uuid_text

if TYPE_CHECKING:
    from faker import Generator

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
# What names one person or thing should hardly ever repeat; repeated mail addresses and user names get a number.
_REDRAWN = frozenset(
    {
        *("phone_number", "basic_phone_number", "msisdn", "ssn", "iban", "bban", "credit_card_number"),
        *("license_plate", "vin", "passport_number", "ipv4", "ipv6", "mac_address", "ean", "isbn10", "isbn13"),
    }
)


@dataclass(frozen=True)
class SurrogateCodec(Codec):
    """One cell for every value, one for NULL; values are made by a public rule.

    Attributes:
        where: ``table.column`` (or just the column), for messages.
        nullable: Whether the column has a cell for NULL.
        pattern: A regular expression, or a provider of the Faker library; None for UUIDs.
        max_length: Longest text that a pattern makes, in characters.
    """

    where: str
    nullable: bool
    pattern: Pattern | None = None
    max_length: int = 0

    @property
    def proper(self) -> int:
        return 1

    def encode(self, values: pa.ChunkedArray) -> Codes:
        found = values.type
        if not (pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_null(found)):
            raise wrong_type(self.where, "text", found)
        return self.with_nulls(np.zeros(len(values), np.int32), null_mask(values), self.where)

    def decode(self, cells: Codes, rng: np.random.Generator) -> pa.Array:
        null = cells == self.null if self.nullable else np.zeros(len(cells), bool)
        n = len(cells) - int(null.sum())
        if self.pattern is None:
            made = random_uuids(n, rng)
        elif self.pattern.regex is not None:
            made = draw_matching(self.pattern.regex, n, self.max_length, rng)
        else:
            made = pa.array(draw_faker_text(self.pattern.provider or "", n, self.max_length, rng), pa.string())
        return made.take(pa.array(np.cumsum(~null) - 1, mask=null)) if null.any() else made

    def value_labels(self) -> list[str]:
        rule = None if self.pattern is None else self.pattern.regex or self.pattern.provider
        return [rule or "a value"]


def pattern_codec(column: Column, pattern: Pattern, *, table: str = "") -> SurrogateCodec:
    """Return the codec of a text column with a pattern.

    Raises:
        SpecError: The column is no text, the pattern is both or neither of the two kinds, or no text can be made by it.
    """
    where, limit = qualified(column, table), length_limit(column)
    if not (column.type.opaque and column.type.logical.textual):
        raise SpecError(f"{where}: a pattern on a column of type {column.type}; patterns are for text columns")
    match pattern:
        case Pattern(str(regex), None):
            check_regex(regex, limit, where)
        case Pattern(None, str(provider)):
            check_provider(provider, where)
        case _:
            raise SpecError(f"{where}: a pattern is a regular expression or a provider of Faker; give one of the two")
    return SurrogateCodec(where, column.nullable, pattern, limit)


def random_uuids(n: int, rng: np.random.Generator) -> pa.Array:
    """Return random UUIDs (version 4) as text, in no order; 122 random bits make them distinct.

    >>> random_uuids(1, np.random.default_rng(0))[0].as_py()[14]
    '4'
    """
    raw = rng.integers(0, 256, (n, 16), np.uint8)
    raw[:, 6] = raw[:, 6] & 0x0F | 0x40
    raw[:, 8] = raw[:, 8] & 0x3F | 0x80
    return uuid_text(raw)


def key_alphabets(column: Column, pattern: Pattern, *, table: str = "") -> list[str]:
    """Return the characters that a text key may have at each of its places, by its pattern.

    Raises:
        SpecError: Not every text that matches has as many characters, or the column has no room for them.

    >>> from privbench_core.schema.columns import ColumnType
    >>> key_alphabets(Column("id", ColumnType.TEXT), Pattern("C-[0-3]{2}"))
    ['C', '-', '0123', '0123']
    """
    where = f"{qualified(column, table)}: the pattern of a key"
    try:
        places = list(_places(_parser.parse(pattern.regex or ".*")))
    except (re.error, _UnfollowableError):
        found = "is not made of characters, classes and {n} alone"
        raise SpecError(f"{where} {found}; write one like 'C-[0-9]{{6}}', by which keys are numbered") from None
    if len(places) > length_limit(column):
        raise SpecError(f"{where} makes {len(places)} characters; shorten it or raise max_length")
    if all(len(alphabet) == 1 for alphabet in places):
        raise SpecError(f"{where} makes one key alone; write one like 'C-[0-9]{{6}}'")
    return places


def _places(parsed: Any) -> Iterator[str]:
    for kind, value in parsed:
        if kind is sre.LITERAL:
            yield chr(value)
        elif kind is sre.IN:
            yield "".join(sorted(_listed(kind, value)))
        elif kind in _REPEATS and value[0] == value[1]:
            yield from [*_places(value[2])] * value[0]
        elif kind is sre.SUBPATTERN:
            yield from _places(value[-1])
        else:
            raise _UnfollowableError


def check_regex(regex: str, max_length: int, where: str) -> None:
    """Refuse an expression that no text can be made for.

    Raises:
        SpecError: It cannot be parsed, holds a construct that cannot be made by drawing (look-around, references to
            groups, word boundaries), or makes no text of at most ``max_length`` characters.
    """
    try:
        pattern = re.compile(regex)
    except re.error as error:
        raise SpecError(f"{where}: the pattern {regex!r} is not a regular expression ({error}); correct it") from None
    try:
        made = draw_matching(regex, 200, max_length, np.random.default_rng(0)).to_pylist()
    except _UnfollowableError as error:
        todo = "use only classes, groups, alternatives and repetition"
        raise SpecError(f"{where}: the pattern {regex!r} holds {error}; {todo}") from None
    if not made:
        found = f"matches no text of at most {max_length} characters"
        raise SpecError(f"{where}: the pattern {regex!r} {found}; shorten it or raise max_length")
    if not all(pattern.fullmatch(text) for text in made):
        found = "has an anchor such as ^ or $ in its middle, or a possessive repetition"
        raise SpecError(f"{where}: the pattern {regex!r} {found}; remove it")


def draw_matching(regex: str, n: int, max_length: int, rng: np.random.Generator) -> pa.Array:
    """Return ``n`` random texts that match in full, of at most ``max_length`` characters; none if none is short enough.

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
    most = low + 10 if high is sre.MAXREPEAT else high
    most = max(low, min(most, room // width))
    times = rng.integers(low, most + 1, n)
    offsets = np.append(0, np.cumsum(times)).astype(np.int32)
    pieces = _draw(repeated, int(offsets[-1]), max(width, room // max(1, most)), rng)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), pieces), "")


def check_provider(provider: str, where: str) -> None:
    """Refuse a provider that Faker does not have, or that makes no text.

    Raises:
        SpecError: With the nearest name there is.
    """
    from faker.exceptions import BaseFakerException

    generator = _generator(0)
    known = {name for part in generator.providers for name in dir(part) if name[0] != "_"}
    if provider not in known:
        raise SpecError(f"{where}: Faker has no provider {provider!r}; {did_you_mean(provider, known)}")
    try:
        sample = getattr(generator, provider)()
    except (TypeError, AttributeError, BaseFakerException):
        sample = None
    if not isinstance(sample, str | int | float | Decimal | date | time):
        raise SpecError(f"{where}: Faker's provider {provider!r} makes no text by itself; choose another, say 'name'")


def draw_faker_text(provider: str, n: int, max_length: int, rng: np.random.Generator) -> list[str]:
    """Return ``n`` made-up texts of one line each.

    Texts longer than ``max_length`` are drawn again, and cut (before the @) if that does not help. Those that name one
    person or thing (`email`, `phone_number`, ..) are distinct as far as their form allows.
    """
    generator = _generator(int(rng.integers(2**63)))
    # Unweighted, three of four of Faker's names would have a title.
    parts = ("first_name", "last_name") if provider == "name" else (provider,)
    make: list[Callable[[], object]] = [getattr(generator, part) for part in parts]

    def text() -> str:
        return ", ".join(" ".join(str(each()) for each in make).splitlines())

    made = [text() for _ in range(n)]
    for _ in range(REDRAWING_ROUNDS):
        wrong = [row for row, value in enumerate(made) if len(value) > max_length]
        if provider in _REDRAWN:
            wrong += _repetitions(made)
        if not wrong:
            break
        for row in wrong:
            made[row] = text()
    return _fitted(provider, made, max_length)


def fitted(column: Column, values: pa.Array) -> pa.Array:
    """Return made-up texts of a column with a provider, cut to its length, and numbered where accounts repeat."""
    null, provider = values.is_null(), column.domain.provider if isinstance(column.domain, Pattern) else None
    made = _fitted(provider or "", values.drop_null().to_pylist(), length_limit(column))
    place = np.cumsum(~null.to_numpy(zero_copy_only=False)) - 1
    return pa.array(made, pa.string()).take(pa.array(place, mask=null.to_numpy(zero_copy_only=False)))


def _fitted(provider: str, made: Iterable[str], max_length: int) -> list[str]:
    short = [_cut(value, max_length) for value in made]
    return _numbered(short, max_length) if provider.endswith(("email", "user_name")) else short


def _generator(seed: int) -> Generator:
    from faker import Factory  # a tenth of a second

    # Weighted draws are ten times as slow, and repeat common names far more often.
    generator = Factory.create("en_US", use_weighting=False)
    generator.seed_instance(seed)
    return generator


def _cut(text: str, max_length: int) -> str:
    if len(text) <= max_length:
        return text
    head, at, tail = text.partition("@")
    room = max_length - len(at) - len(tail)
    return head[:room] + at + tail if at and room > 0 else text[:max_length].rstrip(" ,")


def _repetitions(texts: list[str]) -> list[int]:
    """Return the rows whose text stands in an earlier row."""
    first = {text: row for row, text in reversed(list(enumerate(texts)))}
    return [row for row, text in enumerate(texts) if first[text] != row]


def _numbered(texts: list[str], max_length: int) -> list[str]:
    """Texts with a running number in each repetition, before the @ if there is one: ``ann@x.org``, ``ann2@x.org``."""
    used = set(texts)
    latest: dict[str, int] = {}
    for row in _repetitions(texts):
        base = texts[row]
        head, at, tail = base.partition("@")
        number = latest.get(base, 1)
        candidate = base
        while candidate in used and len(end := f"{(number := number + 1)}{at}{tail}") < max_length:
            candidate = head[: max_length - len(end)] + end
        latest[base] = number
        used.add(candidate)
        texts[row] = candidate
    return texts
