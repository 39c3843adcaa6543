"""What names say: of the values in a column (their type, their domain, whose they are), and of the rows of a table.

The guesses are for a draft that its owner reviews, so a miss is acceptable: nothing is published or protected because
a name is missing here. Patterns are of the last words of a name, joined by blanks; of several rules the first counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from privbench_core.backends.catalogue import FoundColumn, FoundTable
from privbench_core.schema.columns import ColumnType, Domain, Learn, Pattern, Range

T = TypeVar("T")

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PERSONS = re.compile(
    r"\b(person|people|customer|client|user|employee|staff|patient|student|pupil|member|contact|author|actor|artist|"
    r"owner|guest|driver|tenant|voter|resident|subscriber|passenger|donor|teacher|doctor|nurse|household|family|"
    r"families|individual|citizen|inhabitant|participant|respondent|applicant|claimant|beneficiary|beneficiaries|"
    r"policy ?holder|account ?holder|borrower|debtor|heir|victim|witness|witnesses|suspect|offender|convict|"
    r"prisoner|inmate|detainee|defendant|plaintiff|refugee|migrant|immigrant|soldier|veteran|survivor|casualty|"
    r"casualties|worker|colleague|trainee|intern|apprentice|graduate|alumni|lecturer|professor|coach|coaches|"
    r"athlete|player|children|spouse|relative|guardian|carer|caregiver|friend|neighbou?r|infant|adult|physician|"
    r"surgeon|dentist|therapist|midwife|midwives|visitor|travell?er|tourist|buyer|shopper|recipient|volunteer|"
    r"speaker|candidate|lawyer|officer)s?\b"
)

# A type that does not fit is refused before anything is paid for.
_DATES = r"(?!update|outdate|backdate|candidate|mandate|validate)[a-z]*date"  # also without a blank, as ``orderdate``
_TIMES = r"timestamp|date ?time|created|updated|([a-z]+ed|paid|sent|made) at"
_SPANS = (("start", "stop"), ("start", "end"), ("begin", "end"))
_COUNTS = (
    r"age|year( id)?|month|count|cnt|qty|quantity|(number of|num) \w+|rank|size|capacity|population|"
    r"(milli)?seconds|minutes|hours|days|weeks|months|years|votes|views|likes|clicks|visits|followers|"
    r"wins|losses|goals|purchases|employees|laps|seats|(bed)?rooms|floors|doors"
)
_PERIODS = r"year|season|month|quarter|week|day|hour"
_MEASURES = (
    r"[a-z]*price|amount|total|[a-z]*cost|rate|ratio|percent|pct|weight|height|width|length|distance|miles|km|score|salary|income|"
    r"revenue|balance|tax|discount|fee|lat|latitude|lon|lng|longitude|temperature|temp|duration|value|points|speed|volume|area|"
    r"altitude|elevation|depth|bathrooms|profit|sales|margin|percentage|probability"
)
MONEY = (
    r"[a-z]*price|[a-z]*cost|fee|salary|income|revenue|balance|(payment|invoice|order|freight|shipping|paid|net|gross) "
    r"(value|amount|total)"
)
"""Words of what has two digits after the point, in a CSV file."""
# What systems write themselves, they write to the second.
_WRITTEN = r"creat(ed?|ion)|modifi(ed|cation)|updated?|edit(ed)?|access(ed)?|activity|login"
_TYPES = (
    (rf"({_WRITTEN}) ?date|date ({_WRITTEN})", ColumnType.TIMESTAMP),
    (rf"({_DATES})( of [a-z]+|( [a-z]+)* [a-z]+ed)?|dob|birthday|day", ColumnType.DATE),
    (_TIMES, ColumnType.TIMESTAMP),
    (r"[a-z]+ per [a-z]+", ColumnType.FLOAT),
    (_COUNTS, ColumnType.INTEGER),
    (_MEASURES, ColumnType.FLOAT),
)
# What numbers things: also without a blank, as ``storeid``, but no word that ends like that.
_NUMBERED = r"(?<!year )(?!(in)?valid|(un|pre)?paid|bid|grid|mid|void|solid|fluid|humid|rapid|acid|covid)[a-z]*id"
_CODES = r"[a-z]*codes?|zip|plz|snomed|icd|loinc|naics|mcc|isbn|[a-z]*sku|upc|ean|gtin"
_DOMAINS: dict[ColumnType, tuple[tuple[str, Domain], ...]] = {
    ColumnType.INTEGER: (
        (r"age", Range(0, 120)),
        (r"month", Range(1, 12)),
        (r"day", Range(1, 31)),
        (r"quarter", Range(1, 4)),
        (rf"{_CODES}|{_NUMBERED}", Learn(listed=True)),
    ),
    **dict.fromkeys(
        (ColumnType.FLOAT, ColumnType.DECIMAL),
        ((r"lat|latitude", Range(-90, 90)), (r"lon|lng|longitude", Range(-180, 180))),
    ),
}

_NAMES, _ADDRESSES, _POSTAL_CODES = "names of persons", "addresses", "postal codes"
_NETWORK_ADDRESSES, _FREE_TEXT = "network addresses", "free text"
_FEW_SHARE = "values that few rows share"


@dataclass(frozen=True)
class Guess:
    """Probable content of a column."""

    what: str  # in words
    domain: Domain | None  # the public rule to make new values by, or to learn; None where only the length is kept
    of_persons: bool = True  # whether a table with such a column is probably one of persons


def _fake(what: str, provider: str) -> Guess:
    return Guess(what, Pattern(provider=provider))


# Nearly every row has another one: a learned list would name few of them, and cost as much.
_NEARLY_UNIQUE = (
    r"uid|uuid|guid|serial( (number|no))?|(reference|document|invoice|order|tracking) ?(number|no|nr)|last update|"
    r"(update|create)d?( (at|on|date))?|row ?id"
)
_PERHAPS_UNIQUE = r"names?|titles?|captions?|composer|company|path|file ?name|sku|isbn|barcode"
_DIGIT = "[0-9a-f]"
_UUIDS = {  # by their length
    32: rf"{_DIGIT}{{12}}4{_DIGIT}{{3}}[89ab]{_DIGIT}{{15}}",
    36: rf"{_DIGIT}{{8}}-{_DIGIT}{{4}}-4{_DIGIT}{{3}}-[89ab]{_DIGIT}{{3}}-{_DIGIT}{{12}}",
}
# A number may follow. A ``street_number`` is no street, and a ``phone_type`` no phone.
_CONTENTS = (
    (r"e ?mails?( ?address(es)?)?|mail", _fake("e-mail addresses", "email")),
    (r"(phone|mobile|cell|fax|tel|telephone|msisdn)( ?(number|no|nr))?", _fake("phone numbers", "phone_number")),
    (r"ssn|social security( (number|no))?", _fake("social security numbers", "ssn")),
    (r"iban|bank account( (number|no))?", _fake("bank accounts", "iban")),
    (r"credit ?card|(card|cc) ?(number|no|nr)", _fake("card numbers", "credit_card_number")),
    (r"(passport|tax ?id|national ?id|licen[cs]e|vat)( ?(number|no))?|mrn", Guess("numbers of persons", None)),
    (r"ip( ?addr(ess)?)?|ipv4", _fake(_NETWORK_ADDRESSES, "ipv4")),
    (r"mac( address)?", _fake(_NETWORK_ADDRESSES, "mac_address")),
    (r"user ?name|login|nick ?name|screen name|display name", _fake("user names", "user_name")),
    (r"(first|given|fore|middle) ?name|fname|name (first|given|middle)", _fake(_NAMES, "first_name")),
    (r"(last|family|sur|maiden) ?name|lname|name last", _fake(_NAMES, "last_name")),
    (r"(full|contact|person|customer|patient|employee) ?name", _fake(_NAMES, "name")),
    (r"(address|street|addr)( ?line)?", _fake(_ADDRESSES, "street_address")),
    (r"zip|zip ?code|post ?code|postal ?code", Guess(_POSTAL_CODES, Learn())),
    (r"url|website|homepage|link", Guess("addresses of pages", Pattern(provider="url"), of_persons=False)),
    (r"password|passwd|pwd|hash|token|secret|(api|session) key|session data|salt", Guess("secrets", None)),
    (
        r"comments?|notes?|remarks?|description|body|message|text|bio|about|about me|review|content|memo",
        Guess(_FREE_TEXT, Learn(), of_persons=False),
    ),
    (_NEARLY_UNIQUE, Guess(_FEW_SHARE, None, of_persons=False)),
    (_PERHAPS_UNIQUE, Guess(_FEW_SHARE, Learn(), of_persons=False)),
)
# Words that are names in tables of persons only: the provider by the whole name of a column.
_WORDS_OF_NAMES = {
    "name": "name", "first": "first_name", "given": "first_name", "middle": "first_name", "last": "last_name",
    "maiden": "last_name", "family": "last_name",
}  # fmt: skip
_SQL_TYPES = {"inet": "ipv4", "macaddr": "mac_address"}

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
# What numbers a person, or a document or a device that one person has.
_OF_ONE_PERSON = (
    rf"{_SOMEBODY}( ?unique)? ?{_NUMBER}",
    rf"{_DOCUMENT} ?{_NUMBER}",
    r"(unique ?)?p ?id|[up]+ ?id|nin|nino|tin|cpf|bsn|pesel|aadhaa?r|mrn|ssn|imei|imsi|iccid|idfa|gaid|orcid",
    r"(licen[cs]e )?plate|finger ?print|account|(credit |debit )?card|visa|avatar|photo|portrait|cookie",
    r"handle|alias|twitter|facebook|instagram|linked ?in|skype|telegram|whats ?app|git ?hub",
    rf"{_SOMEBODY}( ?s)? ?(e ?mail|phone|login|account|card)",
)
_NAME_OF_SOMEBODY = rf"{_SOMEBODY}|({_SOMEBODY}|maiden|birth|legal|preferred|billing|shipping|holder) ?name|initials"
# What many persons have in common: in a table of persons two rows may have the same, and be two persons.
_IN_COMMON = {_NAMES, _ADDRESSES, _POSTAL_CODES, _NETWORK_ADDRESSES}
# What describes a person, without naming one.
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


def words_of(name: str) -> str:
    """Return the words of a name in lower case, joined by blanks.

    >>> words_of("ContactEMail"), words_of("ship_address2"), words_of("nameFirst")
    ('contact e mail', 'ship address 2', 'name first')
    """
    return " ".join(_WORDS.findall(name)).lower()


def own_name(table: str) -> str:
    """Return the name of a table without that of its schema, which says nothing of its rows."""
    return table.rpartition(".")[2]


def singular(table: str) -> str:
    """Return a plain singular of a table's name in lower case, for comparing it with names of columns.

    >>> singular("sales.Customers"), singular("people"), singular("categories"), singular("Address")
    ('customer', 'person', 'category', 'address')
    """
    lower = own_name(table).casefold()
    for plural, one in (("people", "person"), ("ies", "y"), ("sses", "ss")):
        if lower.endswith(plural):
            return lower.removesuffix(plural) + one
    return lower.removesuffix("s") if not lower.endswith("ss") else lower


def ends_with(name: str, words: str) -> bool:
    """Return whether the last words of a name match the pattern ``words``."""
    return re.search(rf"(^| )({words})$", words_of(name)) is not None


def first_match(name: str, rules: Iterable[tuple[str, T]]) -> T | None:
    """Return what the first of the rules whose pattern the last words of a name match says, None if there is none."""
    return next((found for words, found in rules if ends_with(name, words)), None)


def is_called_after_persons(table: str) -> bool:
    """Return whether a word of a table's name stands for persons.

    >>> is_called_after_persons("hr.sales_staff"), is_called_after_persons("person.address")
    (True, False)
    """
    return _PERSONS.search(words_of(own_name(table))) is not None


def type_by_name(name: str, siblings: Iterable[str] = ()) -> ColumnType | None:
    """Return the type that a column of a CSV file probably has, None if its name does not say.

    Args:
        name: Its name.
        siblings: Names of the table's columns: next to a month or a year of the same kind, a day is a number, and a
            start and a stop are times.

    >>> str(type_by_name("DEATHDATE")), str(type_by_name("date_of_birth")), type_by_name("candidate")
    ('date', 'date', None)
    >>> str(type_by_name("UpVotes")), str(type_by_name("unitPrice"))
    ('integer', 'float')
    >>> str(type_by_name("reviews_per_month")), str(type_by_name("bathrooms")), str(type_by_name("rooms"))
    ('float', 'float', 'integer')
    >>> str(type_by_name("birthDay")), str(type_by_name("birthDay", ["birthDay", "birthMonth"]))
    ('date', 'integer')
    >>> str(type_by_name("LastAccessDate")), str(type_by_name("date_acct_opened")), type_by_name("date_key")
    ('timestamp', 'date', None)
    >>> type_by_name("START"), str(type_by_name("START", ["START", "STOP"]))
    (None, 'timestamp')
    """
    words, others = words_of(name), set(map(words_of, siblings))
    if words.endswith("day") and {words[:-3] + "month", words[:-3] + "year"} & others:
        return ColumnType.INTEGER
    if any(words in pair and others.issuperset(pair) for pair in _SPANS):
        return ColumnType.TIMESTAMP
    return first_match(name, _TYPES)


def orders_rows(name: str, *, alone: bool) -> bool:
    """Return whether a whole number in a key probably has an order that means something: a season, not a row's number.

    Args:
        name: Of its column.
        alone: Whether it is the whole key, and so numbers rows unless it is called after a time.

    >>> orders_rows("yearID", alone=True), orders_rows("round", alone=False), orders_rows("store_id", alone=False)
    (True, True, False)
    """
    return ends_with(name, rf"({_PERIODS})( id)?") or not (alone or ends_with(name, _NUMBER))


def domain_by_name(name: str, kind: ColumnType, table: FoundTable) -> Domain | None:
    """Return a domain that is general knowledge, like that of ages; None if the name does not say one.

    Numbers of things are a list; those of persons, and those that never repeat, are none.
    """
    found = first_match(name, _DOMAINS.get(kind, ()))
    alone = isinstance(found, Learn) and ((name,) in table.unique or name in identifying_columns(table, distinct=True))
    return None if alone else found


def guess_identifying(column: FoundColumn, table: str, length: int | None) -> Guess | None:
    """Return the identifying content that a text column probably has, None if it has none.

    Args:
        column: The column.
        table: Name of its table: ``name`` is a person's in some tables and a product's in others.
        length: The most characters it may hold, None if there is no bound.
    """
    if column.type is None or not column.type.logical.textual or column.values:
        return None
    if column.sql_type in _SQL_TYPES:
        return _fake(_NETWORK_ADDRESSES, _SQL_TYPES[column.sql_type])
    if column.sql_type == "cidr":
        return Guess("networks", Pattern(regex=r"10\.[1-9][0-9]?\.0\.0/16"))
    if length is not None and length <= 2:  # noqa: PLR2004 - characters: a flag, whatever its name; chosen by hand
        return None
    if length in _UUIDS and ends_with(column.name, "uuid|guid"):
        return Guess("universal identifiers", Pattern(regex=_UUIDS[length]), of_persons=False)
    guess = _guess_by_name(column.name, table)
    # Longer texts are free: 255 characters are written where no bound is meant.
    if guess is None and length is not None and length >= 256:  # noqa: PLR2004
        return Guess(_FREE_TEXT, None, of_persons=False)
    return guess


def _guess_by_name(name: str, table: str) -> Guess | None:
    """Return the identifying content that a column of some type has by its name, None if its name says none."""
    words = words_of(name)
    if words in _WORDS_OF_NAMES and is_called_after_persons(table):
        return _fake(_NAMES, _WORDS_OF_NAMES[words])
    return first_match(re.sub(r" \d+$", "", words), _CONTENTS)


def numbers_own_person(name: str, table: FoundTable) -> bool:
    """Return whether a column probably numbers the persons that a table lists: next to it are their names."""
    of_somebody = ends_with(name, rf"{_SOMEBODY} ?id")
    names = [
        column for column in table.usable if (guess := _guess_by_name(column, table.name)) and guess.what == _NAMES
    ]
    return of_somebody and len(names) > 1


def identifying_columns(table: FoundTable, *, distinct: bool = False) -> tuple[str, ...]:
    """Return the columns that name or number persons, by their names.

    Args:
        table: The table.
        distinct: Whether to leave out what two persons may have in common, as names and addresses.

    >>> names = ("id", "e_mail", "patient_no", "email_opt_in", "title", "last_name")
    >>> visit = FoundTable("visit", tuple(FoundColumn(name, ColumnType.INTEGER, "bigint", True) for name in names))
    >>> identifying_columns(visit), identifying_columns(visit, distinct=True)
    (('e_mail', 'patient_no', 'last_name'), ('e_mail', 'patient_no'))
    """
    found = ((column.name, _identity(column, table.name)) for column in table.columns)
    return tuple(name for name, guess in found if guess and not (distinct and guess.what in _IN_COMMON))


def content_by_name(table: FoundTable) -> str | None:
    """Return what a table holds of persons by its own name, None if the name does not say it.

    >>> [content_by_name(FoundTable(name, ())) for name in ("victims", "Addresses", "wards")]
    ['rows of persons', 'addresses', None]
    """
    if is_called_after_persons(table.name):
        return "rows of persons"
    guess = _guess_by_name(singular(table.name), table.name)
    return guess.what if guess is not None and (guess.of_persons or guess.what == _FREE_TEXT) else None


def personal_columns(table: FoundTable) -> tuple[str, ...]:
    """Return what the columns of a table say of persons, as phrases.

    >>> columns = tuple(FoundColumn(name, ColumnType.CATEGORY, "text", nullable=True) for name in ("born", "sex"))
    >>> personal_columns(FoundTable("victims", columns))
    ('a birth or death date (born)', 'columns that describe a person (sex)')
    """
    names = list(table.usable)
    found = {what: [name for name in names if ends_with(name, words)] for what, words in _TRAITS.items()}
    guesses = {name: _guess_by_name(name, table.name) for name in names}
    found[_FREE_TEXT] = [name for name, guess in guesses.items() if guess and guess.what == _FREE_TEXT]
    referring = {name for key in table.foreign_keys for name in key.columns}  # their parents have phrases of their own
    found["identifying columns"] = [name for name in identifying_columns(table) if name not in referring]
    return tuple(f"{what} ({', '.join(columns)})" for what, columns in found.items() if columns)


def _identity(column: FoundColumn, table: str) -> Guess | None:
    """Return what of a person a column holds by its name, None if nothing; a flag or a time names nobody."""
    if column.type is None or column.type in _NO_NAMES:
        return None
    if any(ends_with(column.name, words) for words in _OF_ONE_PERSON):
        return Guess("numbers of persons", None)
    guess = _guess_by_name(column.name, table)
    if guess is not None and guess.of_persons:
        return guess
    return Guess(_NAMES, None) if ends_with(column.name, _NAME_OF_SOMEBODY) else None
