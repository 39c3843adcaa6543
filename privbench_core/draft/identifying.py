"""Which columns probably say who somebody is, told by name and type alone.

A guess, for a draft that its owner edits: a miss is what the owner's own look at the draft is for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from privbench_core.backends.catalogue import FoundColumn, FoundTable
from privbench_core.schema.columns import Domain, Pattern

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LONG = 200  # from here on, text is prose rather than a name of something


@dataclass(frozen=True)
class Guess:
    """What a column probably holds.

    Attributes:
        what: In words.
        domain: The public rule to make new values by; None for text of which only the length is kept.
    """

    what: str
    domain: Domain | None


def _fake(what: str, provider: str) -> Guess:
    return Guess(what, Pattern(provider=provider))


# Words of a name, joined by blanks, with the most telling first.
_NAMES = (
    (r"\be ?mail(s|address)?\b|\bmail\b", _fake("e-mail addresses", "email")),
    (r"\b(phone|mobile|cell|fax|tel|telephone|msisdn)\b", _fake("phone numbers", "phone_number")),
    (r"\b(ssn|social security)\b", _fake("social security numbers", "ssn")),
    (r"\b(iban|bank account)\b", _fake("bank accounts", "iban")),
    (r"\b(credit card|card (number|no|nr)|cc (number|no|nr))\b", _fake("card numbers", "credit_card_number")),
    (r"\b(passport|tax id|national id|licen[cs]e (number|no)|vat)\b", Guess("numbers of persons", None)),
    (r"\b(ip|ip ?addr|ip address|ipv4)\b", _fake("network addresses", "ipv4")),
    (r"\b(mac|mac address)\b", _fake("network addresses", "mac_address")),
    (r"\b(user ?name|login|nick ?name|screen name|display name)\b", _fake("user names", "user_name")),
    (r"\b(first|given|fore|middle) ?name\b|\bfname\b", _fake("names of persons", "first_name")),
    (r"\b(last|family|sur|maiden) ?name\b|\blname\b", _fake("names of persons", "last_name")),
    (r"\b(full|contact|person|customer|patient|employee) ?name\b", _fake("names of persons", "name")),
    (r"\b(addresse?|street|addr)( ?line)?( ?\d)?\b", _fake("addresses", "street_address")),
    (r"\b(zip|zip ?code|post ?code|postal code)\b", _fake("postal codes", "postcode")),
    (r"\b(url|website|homepage|link)\b", _fake("addresses of pages", "url")),
    (r"\b(password|passwd|pwd|hash|token|secret|api key|salt)\b", Guess("secrets", None)),
    (
        r"\b(comments?|notes?|remarks?|description|body|message|text|bio|about|about me|review|content|memo)\b",
        Guess("free text", None),
    ),
)
_PERSONS = re.compile(
    r"\b(person|people|customer|client|user|employee|staff|patient|student|member|contact|author|actor|artist|owner|"
    r"guest|driver|tenant|voter|resident|subscriber|passenger|donor|teacher|doctor|nurse)s?\b"
)
_TYPES = {"inet": "ipv4", "macaddr": "mac_address"}


def guess_identifying(column: FoundColumn, table: str, length: int | None) -> Guess | None:
    """Return what a column of text probably tells about a person; None if nothing.

    Args:
        column: The column.
        table: Name of its table: a name is a person's in some, and a product's in others.
        length: The most characters it may hold, None if there is no bound.

    >>> from privbench_core.schema.columns import ColumnType
    >>> column = FoundColumn("ContactEMail", ColumnType.CATEGORY, "text", nullable=True)
    >>> guess = guess_identifying(column, "client", None)
    >>> guess.what if guess else None
    'e-mail addresses'
    """
    if column.type is None or not column.type.logical.textual or column.values:
        return None
    if column.sql_type in _TYPES:
        return _fake("network addresses", _TYPES[column.sql_type])
    if column.sql_type == "cidr":
        return Guess("networks", Pattern(regex=r"10\.[1-9][0-9]?\.0\.0/16"))
    words, about = (" ".join(_WORDS.findall(name)).lower() for name in (column.name, table))
    if words == "name" and _PERSONS.search(about):
        return _fake("names of persons", "name")
    for pattern, guess in _NAMES:
        if re.search(pattern, words):
            return guess
    return Guess("free text", None) if length is not None and length >= _LONG else None


def describes_persons(table: FoundTable) -> bool:
    """Return whether a table has names, addresses or numbers of somebody."""
    guesses = (guess_identifying(column, table.name, None) for column in table.columns)
    return any(guess is not None and guess.domain is not None for guess in guesses)
