"""Say by the names of columns, whatever their types, what a table holds of persons: a remark for its owner.

Nothing is published or protected because a name is missing here: names decide only which remarks an owner reads.
"""

from __future__ import annotations

import re

from privbench_core.backends.catalogue import FoundColumn, FoundTable
from privbench_core.draft.identifying import (
    ADDRESSES,
    FREE_TEXT,
    NAMES,
    NETWORK_ADDRESSES,
    POSTAL_CODES,
    Guess,
    guess_by_name,
)
from privbench_core.draft.words import PERSONS, singular, words_of
from privbench_core.schema.columns import ColumnType

_NUMBER = r"(id|key|no|nr|num|number|uid|uuid|guid|code|ref|hash|pid)"
_SOMEBODY = (
    r"(person|patient|customer|cust|client|user|member|membership|subject|student|pupil|household|hh|employee|emp|staff|"
    r"personnel|worker|individual|participant|respondent|donor|voter|citizen|resident|guest|passenger|subscriber|"
    r"subscription|visitor|viewer|reader|buyer|shopper|rider|driver|player|applicant|candidate|beneficiary|insured|"
    r"(policy|account|card) ?holder|borrower|tenant|owner|author|contact|profile|recipient|sender|caller|claimant|"
    r"victim|suspect|offender|defendant|prisoner|inmate|teacher|doctor|nurse)"
)
_DOCUMENT = (
    r"(national|tax|tax ?payer|social|social ?security|social ?insurance|insurance|national ?insurance|health|nhs|"
    r"medicare|medicaid|medical ?record|health ?(card|insurance)|passport|visa|(driver|driving)( ?s)? ?licen[cs]e|"
    r"licen[cs]e( ?plate)?|plate|pension|(residence )?permit|identity( ?card)?|id ?card|(bank )?account|acct|iban|"
    r"(credit|debit|bank|loyalty)? ?card|policy|badge|matriculation|enrol?ment|chart|device|handset|cookie|browser|"
    r"session|advertising|facebook|google|apple|wallet)"
)
# The last words of a name that numbers a person, or a document or a device that one person has.
_OF_ONE_PERSON = (
    rf"{_SOMEBODY}( ?unique)? ?{_NUMBER}",
    rf"{_DOCUMENT} ?{_NUMBER}",
    r"(unique ?)?p ?id|[up]+ ?id|nin|nino|tin|cpf|bsn|pesel|aadhaa?r|mrn|ssn|imei|imsi|iccid|idfa|gaid|orcid",
    r"(licen[cs]e )?plate|finger ?print|account|(credit |debit )?card|visa|avatar|photo|portrait|cookie",
    r"handle|alias|twitter|facebook|instagram|linked ?in|skype|telegram|whats ?app|git ?hub",
    rf"{_SOMEBODY}( ?s)? ?(e ?mail|phone|login|account|card)",
)
_NAMES_OF_SOMEBODY = rf"{_SOMEBODY}|({_SOMEBODY}|maiden|birth|legal|preferred|billing|shipping|holder) ?name|initials"
# What many persons have in common: in a table of persons two rows may have the same, and be two persons.
_IN_COMMON = {NAMES, ADDRESSES, POSTAL_CODES, NETWORK_ADDRESSES}
# The last words of a column that describes a person, without naming one.
_TRAITS = {
    "a birth or death date": (
        r"born|died|deceased|dob|yob|(date|year|day|month) of (birth|death)|(birth|death) ?[a-z]*"
    ),
    "a wage or an income": (
        r"wages?|salary|salaries|incomes?|pay|earnings?|compensation|bonus|pension|allowance|stipend|remuneration"
    ),
    "columns that describe a person": (
        r"age|sex|gender|marital( ?status)?|ethnicity|ethnic group|religion|nationality|citizenship|occupation|"
        r"residence|diagnos[ei]s|disability|blood ?(type|group)|injury|injuries|allergy|allergies|disease|illness|"
        r"symptoms?|medication|genotype|genome|dna"
    ),
}
_NO_NAMES = frozenset({ColumnType.BOOLEAN, ColumnType.DATE, ColumnType.TIMESTAMP, ColumnType.TIMESTAMPTZ})


def identifying_columns(table: FoundTable) -> tuple[str, ...]:
    """Return the columns that name or number persons, by their names.

    >>> names = ("id", "e_mail", "patient_no", "email_opt_in", "title")
    >>> columns = tuple(FoundColumn(name, ColumnType.INTEGER, "bigint", nullable=True) for name in names)
    >>> identifying_columns(FoundTable("visit", columns))
    ('e_mail', 'patient_no')
    """
    return tuple(column.name for column in table.columns if _identity(column, table.name))


def numbers_of_persons(table: FoundTable) -> tuple[str, ...]:
    """Return the identifying columns in which two persons hardly have the same value, so no names and no addresses."""
    found = ((column.name, _identity(column, table.name)) for column in table.columns)
    return tuple(name for name, guess in found if guess and guess.what not in _IN_COMMON)


def is_called_after_persons(table: FoundTable) -> bool:
    """Return whether a word of the table's name stands for persons."""
    return bool(PERSONS.search(words_of(table.name)))


def content_by_name(table: FoundTable) -> str | None:
    """Return what a table holds of persons by its own name, None if the name does not say it.

    >>> [content_by_name(FoundTable(name, ())) for name in ("victims", "Addresses", "wards")]
    ['rows of persons', 'addresses', None]
    """
    if is_called_after_persons(table):
        return "rows of persons"
    guess = guess_by_name(words_of(singular(table.name)), table.name)
    return guess.what if guess is not None and (guess.of_persons or guess.what == FREE_TEXT) else None


def personal_columns(table: FoundTable) -> tuple[str, ...]:
    """Return what the columns of a table say of persons, as phrases.

    >>> columns = tuple(FoundColumn(name, ColumnType.CATEGORY, "text", nullable=True) for name in ("born", "sex"))
    >>> personal_columns(FoundTable("victims", columns))
    ('a birth or death date (born)', 'columns that describe a person (sex)')
    """
    phrases: list[str] = []
    columns = [column for column in table.columns if column.type is not None]
    for what, words in _TRAITS.items():
        phrases += _phrase(what, [c.name for c in columns if re.search(rf"(^| )({words})$", words_of(c.name))])
    guesses = {column.name: guess_by_name(words_of(column.name), table.name) for column in columns}
    phrases += _phrase(FREE_TEXT, [name for name, guess in guesses.items() if guess and guess.what == FREE_TEXT])
    referring = {name for key in table.foreign_keys for name in key.columns}  # their parents have phrases of their own
    identifying = [name for name in identifying_columns(table) if name not in referring]
    return tuple(phrases + _phrase("identifying columns", identifying))


def _phrase(what: str, columns: list[str]) -> list[str]:
    return [f"{what} ({', '.join(columns)})"] if columns else []


def _identity(column: FoundColumn, table: str) -> Guess | None:
    """Return what of a person a column holds by its name, None if nothing; a flag or a time names nobody."""
    if column.type is None or column.type in _NO_NAMES:
        return None
    words = words_of(column.name)
    if any(re.search(rf"(^| )({pattern})$", words) for pattern in _OF_ONE_PERSON):
        return Guess("numbers of persons", None)
    guess = guess_by_name(words, table)
    if guess is not None and guess.of_persons:
        return guess
    return Guess(NAMES, None) if re.search(rf"(^| )({_NAMES_OF_SOMEBODY})$", words) else None
