"""What the name of a column says of its values: the types of CSV columns, and domains that everybody knows."""

from __future__ import annotations

import re
from collections.abc import Iterable

from privbench_core.draft.words import words_of
from privbench_core.schema.columns import ColumnType, Domain, Learn, Range

# The last words of a name; the first match counts. A type that does not fit is refused before anything is paid for.
_DATES = r"(?!update|outdate|backdate|candidate|mandate|validate)[a-z]*date"  # also without a blank, as ``orderdate``
_TIMES = r"timestamp|date ?time|created|updated|([a-z]+ed|paid|sent|made) at"
_COUNTS = (
    r"age|year( id)?|month|quarter|count|cnt|qty|quantity|(number of|num) \w+|rank|size|capacity|population|"
    r"(milli)?seconds|minutes|hours|days|weeks|months|years|votes|views|likes|clicks|visits|followers|"
    r"wins|losses|goals|laps|seats|(bed|bath)?rooms|floors|doors"
)
_MEASURES = (
    r"[a-z]*price|amount|total|[a-z]*cost|rate|ratio|percent|pct|weight|height|width|length|distance|miles|km|score|salary|income|"
    r"revenue|balance|tax|discount|fee|lat|latitude|lon|lng|longitude|temperature|temp|duration|value|points|speed|volume|area|"
    r"altitude|elevation|depth|profit|sales|margin|percentage|probability"
)
_MONEY = (
    r"[a-z]*price|[a-z]*cost|fee|salary|income|revenue|balance|(payment|invoice|order|freight|shipping|paid|net|gross) "
    r"(value|amount|total)"
)
_TYPES = (
    (rf"({_DATES})( of [a-z]+)?|dob|birthday|day", ColumnType.DATE),
    (_TIMES, ColumnType.TIMESTAMP),
    (_COUNTS, ColumnType.INTEGER),
    (_MEASURES, ColumnType.FLOAT),
)
_DOMAINS = (
    (r"age", {ColumnType.INTEGER}, Range(0, 120)),
    (r"month", {ColumnType.INTEGER}, Range(1, 12)),
    (r"day", {ColumnType.INTEGER}, Range(1, 31)),
    (r"quarter", {ColumnType.INTEGER}, Range(1, 4)),
    (r"[a-z]*codes?|zip|plz|snomed|icd|loinc|naics|mcc", {ColumnType.INTEGER}, Learn(listed=True)),
    (r"lat|latitude", {ColumnType.FLOAT, ColumnType.DECIMAL}, Range(-90, 90)),
    (r"lon|lng|longitude", {ColumnType.FLOAT, ColumnType.DECIMAL}, Range(-180, 180)),
)


def type_by_name(name: str, beside: Iterable[str] = ()) -> ColumnType | None:
    """Return the type that a column of a CSV file probably has, None if its name does not say.

    Args:
        name: Its name.
        beside: Names of the table's columns: beside a month or a year of the same kind, a day is a number.

    >>> str(type_by_name("order_date")), str(type_by_name("unitPrice")), type_by_name("notes")
    ('date', 'float', None)
    >>> str(type_by_name("DEATHDATE")), str(type_by_name("date_of_birth")), type_by_name("candidate")
    ('date', 'date', None)
    >>> str(type_by_name("UpVotes")), str(type_by_name("points"))
    ('integer', 'float')
    >>> str(type_by_name("birthDay")), str(type_by_name("birthDay", ["birthDay", "birthMonth"]))
    ('date', 'integer')
    """
    words = words_of(name)
    if words.endswith("day") and {words[:-3] + "month", words[:-3] + "year"} & set(map(words_of, beside)):
        return ColumnType.INTEGER
    return next((kind for ends, kind in _TYPES if re.search(rf"(^| )({ends})$", words)), None)


def has_cents(name: str) -> bool:
    """Return whether a column of a CSV file is probably money, with two digits after the point.

    >>> has_cents("unitPrice"), has_cents("payment_value"), has_cents("weight")
    (True, True, False)
    """
    return bool(re.search(rf"(^| )({_MONEY})$", words_of(name)))


def is_money(name: str) -> bool:
    """Return whether a column may hold money, if its numbers have digits after the point.

    >>> is_money("amount"), is_money("monthly_payments"), is_money("weight")
    (True, True, False)
    """
    return has_cents(name) or bool(re.search(r"(^| )(amount|payments?)$", words_of(name)))


def domain_by_name(name: str, kind: ColumnType) -> Domain | None:
    """Return a domain that is general knowledge, like that of ages; None if the name does not say one.

    >>> domain_by_name("patient_age", ColumnType.INTEGER)
    Range(low=0, high=120, cells=None, step=None)
    >>> domain_by_name("reasoncode", ColumnType.INTEGER)
    Learn(listed=True)
    """
    words = words_of(name)
    return next(
        (found for ends, kinds, found in _DOMAINS if kind in kinds and re.search(rf"(^| )({ends})$", words)), None
    )
