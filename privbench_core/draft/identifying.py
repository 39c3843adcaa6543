"""Guess which columns identify persons, from their names and types only.

The guess is for a draft that the owner reviews, so a miss is acceptable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from privbench_core.backends.catalogue import FoundColumn
from privbench_core.draft.words import PERSONS, words_of
from privbench_core.schema.columns import Domain, Pattern

NAMES, ADDRESSES, POSTAL_CODES = "names of persons", "addresses", "postal codes"
NETWORK_ADDRESSES, FREE_TEXT = "network addresses", "free text"
_LONG = 100  # characters from which a text column is probably free text; chosen by hand


@dataclass(frozen=True)
class Guess:
    """Probable content of a column.

    Attributes:
        what: In words.
        domain: The public rule to generate new values by; None for text of which only the length is kept.
        of_persons: Whether a table with such a column is probably one of persons.
    """

    what: str
    domain: Domain | None
    of_persons: bool = True


def _fake(what: str, provider: str) -> Guess:
    return Guess(what, Pattern(provider=provider))


# Nearly every row has another one: a learned list would name few of them, and cost as much.
_NEARLY_UNIQUE = (
    r"names?|titles?|labels?|captions?|composer|company|path|file ?name|sku|isbn|barcode|uid|uuid|guid|"
    r"serial( (number|no))?|(reference|document|invoice|order|tracking) ?(number|no|nr)|last update|"
    r"(update|create)d?( (at|on|date))?"
)
_DIGIT = "[0-9a-f]"
_UUIDS = {  # by their length
    32: rf"{_DIGIT}{{12}}4{_DIGIT}{{3}}[89ab]{_DIGIT}{{15}}",
    36: rf"{_DIGIT}{{8}}-{_DIGIT}{{4}}-4{_DIGIT}{{3}}-[89ab]{_DIGIT}{{3}}-{_DIGIT}{{12}}",
}
# What the words of a name must end with, joined by blanks, but for a number; the first match counts. So a
# ``street_number`` is no street, and ``phone_type`` no phone.
_NAMES = (
    (r"e ?mails?( ?address(es)?)?|mail", _fake("e-mail addresses", "email")),
    (r"(phone|mobile|cell|fax|tel|telephone|msisdn)( ?(number|no|nr))?", _fake("phone numbers", "phone_number")),
    (r"ssn|social security( (number|no))?", _fake("social security numbers", "ssn")),
    (r"iban|bank account( (number|no))?", _fake("bank accounts", "iban")),
    (r"credit card|(card|cc) ?(number|no|nr)", _fake("card numbers", "credit_card_number")),
    (r"(passport|tax ?id|national ?id|licen[cs]e|vat)( ?(number|no))?|mrn", Guess("numbers of persons", None)),
    (r"ip( ?addr(ess)?)?|ipv4", _fake(NETWORK_ADDRESSES, "ipv4")),
    (r"mac( address)?", _fake(NETWORK_ADDRESSES, "mac_address")),
    (r"user ?name|login|nick ?name|screen name|display name", _fake("user names", "user_name")),
    (r"(first|given|fore|middle) ?name|fname|name (first|given|middle)", _fake(NAMES, "first_name")),
    (r"(last|family|sur|maiden) ?name|lname|name last", _fake(NAMES, "last_name")),
    (r"(full|contact|person|customer|patient|employee) ?name", _fake(NAMES, "name")),
    (r"(address|street|addr)( ?line)?", _fake(ADDRESSES, "street_address")),
    (r"zip|zip ?code|post ?code|postal ?code", _fake(POSTAL_CODES, "postcode")),
    (r"url|website|homepage|link", Guess("addresses of pages", Pattern(provider="url"), of_persons=False)),
    (r"password|passwd|pwd|hash|token|secret|(api|session) key|session data|salt", Guess("secrets", None)),
    (
        r"comments?|notes?|remarks?|description|body|message|text|bio|about|about me|review|content|memo",
        Guess(FREE_TEXT, None, of_persons=False),
    ),
    (_NEARLY_UNIQUE, Guess("values that few rows share", None, of_persons=False)),
)
# Words that are names in tables of persons only: the provider by the whole name of a column.
_NAMES_OF_PERSONS = {
    "name": "name", "first": "first_name", "given": "first_name", "middle": "first_name", "last": "last_name",
    "maiden": "last_name", "family": "last_name",
}  # fmt: skip
_SHORT = 2  # characters: a flag, whatever its name; chosen by hand
_TYPES = {"inet": "ipv4", "macaddr": "mac_address"}


def guess_identifying(column: FoundColumn, table: str, length: int | None) -> Guess | None:
    """Return the identifying content that a text column probably has, None if it has none.

    Args:
        column: The column.
        table: Name of its table: ``name`` is a person's in some tables and a product's in others.
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
        return _fake(NETWORK_ADDRESSES, _TYPES[column.sql_type])
    if column.sql_type == "cidr":
        return Guess("networks", Pattern(regex=r"10\.[1-9][0-9]?\.0\.0/16"))
    if length is not None and length <= _SHORT:
        return None
    words = words_of(column.name)
    if length in _UUIDS and re.search(r"(^| )(uuid|guid)$", words):
        return Guess("universal identifiers", Pattern(regex=_UUIDS[length]), of_persons=False)
    guess = guess_by_name(words, table)
    if guess is None and length is not None and length >= _LONG:
        return Guess(FREE_TEXT, None, of_persons=False)
    return guess


def guess_by_name(words: str, table: str) -> Guess | None:
    """Return the identifying content that a column of some type has by its name, None if its name says none.

    Args:
        words: The words of its name.
        table: Name of its table.

    >>> guess = guess_by_name("home phone", "client")
    >>> guess.what if guess else None
    'phone numbers'
    """
    if words in _NAMES_OF_PERSONS and PERSONS.search(words_of(table)):
        return _fake(NAMES, _NAMES_OF_PERSONS[words])
    return next((guess for pattern, guess in _NAMES if re.search(rf"(^| )({pattern})( \d+)?$", words)), None)
