"""Text of a kind people know (names, addresses, phone numbers), made up by the Faker library."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from privbench_core.errors import SpecError, did_you_mean
from privbench_core.guards import REDRAWING_ROUNDS

if TYPE_CHECKING:
    from faker import Generator

# What names one person or thing should hardly ever repeat; repeated mail addresses and user names get a number.
_REDRAWN = frozenset(
    {
        *("phone_number", "basic_phone_number", "msisdn", "ssn", "iban", "bban", "credit_card_number"),
        *("license_plate", "vin", "passport_number", "ipv4", "ipv6", "mac_address", "ean", "isbn10", "isbn13"),
    }
)


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
    """Made-up texts.

    Args:
        provider: That `check_provider` lets pass.
        n: How many.
        max_length: Most characters; longer texts are made again, and cut (before the @) if that does not help.
        rng: Sampling only; the same state gives the same texts.

    Returns:
        One line each. Those that name one person or thing (`email`, `phone_number`, ..) are distinct as far as
        their form allows.
    """
    make: Callable[[], object] = getattr(_generator(int(rng.integers(2**63))), provider)

    def text() -> str:
        return ", ".join(str(make()).splitlines())

    made = [text() for _ in range(n)]
    for _ in range(REDRAWING_ROUNDS):
        again = [row for row, value in enumerate(made) if len(value) > max_length]
        if provider in _REDRAWN:
            again += _repetitions(made)
        if not again:
            break
        for row in again:
            made[row] = text()
    made = [_cut(value, max_length) for value in made]
    return _numbered(made, max_length) if provider.endswith(("email", "user_name")) else made


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
