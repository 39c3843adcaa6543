"""The forms of a spec file: every key of every mapping, what may stand there, and what to write.

`spec.load` and `spec.parse` read by them, `spec.dump` writes by them, and editors complete and check a spec by the JSON
Schema that follows from them: ``python -m privbench_core.spec.forms`` prints it. privbench itself checks more.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from typing import Any

from privbench_core.schema.columns import MOST_DIGITS, ColumnType
from privbench_core.schema.constraints import OnUnitRemoved, parse_actions
from privbench_core.spec.fields import (
    FLAG,
    NAME,
    NAME_LIST,
    NAMES,
    NUMBER,
    TEXT,
    Form,
    Key,
    Kind,
    anything,
    as_name,
    choice,
    count,
    either,
    list_of,
    matching,
    named,
)
from privbench_core.spec.model import DEFAULT_ENGINE, ENGINES, FidelityPolicy

_CRON_FIELDS = 5
_CRON_FIELD = re.compile(r"[\d*/,\-A-Za-z?#]+")


def _read_regex(text: object) -> str | None:
    try:
        return re.compile(text).pattern if isinstance(text, str) and text else None
    except (re.error, RecursionError, OverflowError):
        return None


def _read_cron(value: object) -> str | None:
    parts = value.split() if isinstance(value, str) else []
    return " ".join(parts) if len(parts) == _CRON_FIELDS and all(map(_CRON_FIELD.fullmatch, parts)) else None


YES_OR_NO = Key(FLAG, "write true or false", default=False)
_COMMENT = Key(TEXT, "write text", None)
_SCALAR = anything({"type": ["number", "string", "boolean"]})
_LEARN = choice("learn")
_POSITIVE = NUMBER.that(lambda value: value > 0)
_SHARE = NUMBER.that(lambda value: 0 < value <= 1)
_SMALL = NUMBER.that(lambda value: 0 <= value < 1)

# The privacy unit and the budget.
_PUBLIC = (
    "list a table if anyone may see its rows, like public: [country, product]; else delete it with the foreign keys "
    "that refer to it, or add a foreign key that leads to the unit"
)
LIFETIME = Form(
    epsilon=Key(NUMBER, "declare the largest total of all releases there will ever be"),
    delta=Key(_SMALL, "write a number from 0 to below 1, at least privacy.delta", None),
)
EQUAL_REFRESHES = Form(
    epsilon=Key(_POSITIVE, "write what one refresh, of all epsilons together, may cost"),
    times=Key(count(), "write how many refreshes there may be, the first release counted"),
)
DECAYING_REFRESHES = Form(decay=Key(NUMBER.that(lambda value: 0 < value < 1), "write a number above 0 and below 1"))
LEDGER_FORM = "write postgresql://user:${PASSWORD}@host/database, or ${VARIABLE}"

PRIVACY = Form(
    unit=Key(NAME, "name the table whose rows are protected"),
    public=Key(
        Kind(
            lambda value: () if value == [] else NAMES.read(value),
            {"type": "array", "items": NAME.schema, "uniqueItems": True},
        ),
        _PUBLIC,
        None,
    ),
    delta=Key(_SMALL, "write 0 for pure differential privacy, or a small number like 1.0e-9"),
    epsilons=Key(list_of(_POSITIVE, 1), "list at least one number, all above 0, like [0.8, 1.6, 3.2]"),
    lifetime=Key(
        anything(either(_POSITIVE, LIFETIME.kind).schema),
        "declare the largest total of all releases there will ever be",
    ),
    refresh=Key(
        either(EQUAL_REFRESHES.kind, DECAYING_REFRESHES.kind),
        "write {epsilon: 0.5, times: 6} for six refreshes of at most 0.5, or {decay: 0.5} for ever smaller ones",
        None,
    ),
    cohort=Key(
        matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}"),
        "name it with up to 40 letters, digits, dots, dashes and underscores, like 2027",
        "",
    ),
    ledger=Key(anything(TEXT.schema), LEDGER_FORM, None),
)
_DISTANCE = "write a distance above 0, as a share: 0.25 is a quarter, at most 1"
FIDELITY = Form(
    block=YES_OR_NO,
    accept_noise=YES_OR_NO,
    one_way=Key(_SHARE, _DISTANCE, FidelityPolicy.one_way),
    to_shuffled=Key(_SHARE, _DISTANCE, FidelityPolicy.to_shuffled),
)

# Columns.
_REGEX = "write a regular expression in quotes, like '[A-Z]{2}[0-9]{6}'"
_PROVIDER = "name a provider of the Faker library, like email, name, phone_number or address"
PATTERN = Form(pattern=Key(Kind(_read_regex, TEXT.schema), _REGEX))
FAKER = Form(faker=Key(matching(r"[a-z][a-z0-9_]*"), _PROVIDER))
_LIST = Kind(
    lambda value: value if value == "learn" or (isinstance(value, list) and value) else None,
    either(_LEARN, list_of(_SCALAR, 1)).schema,
)
VALUES = Form(values=Key(_LIST, "list at least one value"))


def range_form(end: Kind, step: Kind, expected: str, step_expected: str) -> Form:
    """Return the form of a range of values; what its ends and its step may be is a matter of the column's type."""
    return Form(
        min=Key(end, f"write {expected}"),
        max=Key(end, f"write {expected}"),
        cells=Key(count(), "write a positive number of cells, or leave it out", None),
        step=Key(step, f"write {step_expected}", None),
    )


_RANGE = range_form(_SCALAR, _SCALAR, "a value of the column's type", "a distance between values")
_DOMAIN = either(_LEARN, *(form.kind for form in (_RANGE, VALUES, PATTERN, FAKER))).schema
SEQUENCE = Form(
    name=Key(TEXT, "write the sequence's name", None),
    increment=Key(count(), "write a positive number", 1),
    always=YES_OR_NO,
)
_TYPES = tuple(kind.value for kind in ColumnType)
COLUMN = Form(
    type=Key(anything(choice(*_TYPES).schema), f"known: {', '.join(_TYPES)}"),
    precision=Key(count(1, MOST_DIGITS), f"write a number of digits from 1 to {MOST_DIGITS}", None),
    scale=Key(count(0, MOST_DIGITS), "write a number of decimals from 0 to the precision", None),
    max_length=Key(count(), "write a positive number of characters or bytes", None),
    relative_to=Key(NAME, "name the column that it is relative to, or table.column of its owner", None),
    domain=Key(anything(_DOMAIN), "declare what values there may be", None),
    format=Key(TEXT, "write how the source writes dates, like '%d/%m/%Y'", None),
    nullable=YES_OR_NO,
    identity=YES_OR_NO,
    sql_type=Key(TEXT, "name a type of PostgreSQL, or an enum of this file", None),
    default=Key(TEXT, "write an SQL expression in quotes", None),
    comment=_COMMENT,
    unit=Key(TEXT, "write what the numbers count, like EUR or minutes", None),
    sequence=Key(SEQUENCE.kind, "write {name:, increment:, always:} beside identity: true, or leave it out", None),
)

# Tables and keys.
_PRIMARY_KEY = "name its column, or [a, b] for several distinct ones; without any, write row_id: generated instead"
_ACTIONS = "write clauses like ON DELETE CASCADE or ON UPDATE RESTRICT DEFERRABLE INITIALLY DEFERRED"
_CHANGE = "write content, {watermark: updated_at} or {sql: 'select ..'}"
_CLAUSES = Kind(lambda text: parse_actions(text) if isinstance(text, str) else None, TEXT.schema)
CHECK = Form(name=Key(NAME, "name the check"), expression=Key(TEXT, "write a condition in SQL, in quotes"))
INDEX = Form(
    name=Key(NAME, "name the index"),
    columns=Key(NAMES, "name its column, or [a, b] for several distinct ones"),
    using=Key(TEXT, "write what follows USING, like 'gin (doc)'", None),
)
DEPENDENCY = Form(
    determinant=Key(NAMES, "name the column, or [a, b], whose values decide"),
    dependent=Key(NAMES, "name the column, or [a, b], whose values are decided"),
)
GENERATED = Form(
    sql_type=Key(NAME, "name a type of PostgreSQL in small letters, or an enum of this file"),
    expression=Key(NAME, "write an expression in SQL, in quotes"),
    nullable=replace(YES_OR_NO, default=True),
    comment=_COMMENT,
)
_BY = "write what follows PARTITION BY, like RANGE (ordered)"
PARTITION = Form(
    name=Key(NAME, "name the partition"),
    values=Key(NAME, "write what follows FOR VALUES, like \"IN ('a', 'b')\", or DEFAULT"),
    of=Key(NAME, "name the partition that it is a part of, or leave it out", None),
    by=Key(NAME, f"{_BY}, or leave it out", None),
)
PARTITIONED = Form(
    by=Key(NAME, _BY),
    columns=Key(NAMES, "name the column, or [a, b], that partitions depend on"),
    partitions=Key(list_of(PARTITION.kind, 1), "write a list like [{name: old, values: DEFAULT}]"),
)
HEIR_KEY = Form(
    columns=Key(NAMES, "name the column, or [a, b], of a foreign key of the table"),
    constraint=Key(TEXT, "write the constraint's name", None),
    actions=Key(_CLAUSES, _ACTIONS, None),
)
WATERMARK = Form(watermark=Key(NAME, "name a column that grows with every change"))
QUERY = Form(sql=Key(TEXT, "write a query that returns one row"))
REFERENCE = Form(table=Key(NAME, "name the parent table"), columns=Key(NAMES, "name the parent's columns", None))
_PER_UNIT = "declare the most rows that refer to the rows of one unit, 1 or more"
FOREIGN_KEY = Form(
    columns=Key(NAMES, "name the foreign key's column, or [a, b] for several"),
    references=Key(either(NAME, REFERENCE.kind), "name the parent table"),
    max_children=Key(count(), "declare the most rows one parent row may have, 1 or more", None),
    max_children_per_unit=Key(count(), _PER_UNIT, None),
    owner=YES_OR_NO,
    optional=YES_OR_NO,
    same_unit=YES_OR_NO,
    on_unit_removed=Key(choice(*OnUnitRemoved), "write cascade or set null", None),
    constraint=Key(TEXT, "write the constraint's name", None),
    actions=Key(_CLAUSES, _ACTIONS, None),
    on_orphan=Key(choice("refuse", "drop"), "write refuse or drop", "refuse"),
)
_LISTED = either(FOREIGN_KEY.kind, list_of(FOREIGN_KEY.kind)).schema
_ROW_ORDER = "name the column, usually a date, in whose order rows were added to the table, or leave it out"
KEY_COLUMNS = Key(NAMES, "write a mapping like {orders_pk: id, one_each: [a, b]}")
HEIR = Form(
    name=Key(NAME, "name the table that inherits"),
    checks=Key(list_of(CHECK.kind, 1), "write a list like [{name: .., expression: 'year = 2024'}]"),
    keys=Key(named(NAMES), KEY_COLUMNS.todo, None),
    foreign_keys=Key(list_of(HEIR_KEY.kind), "write a list like [{columns: customer_id}]", ()),
    indexes=Key(list_of(INDEX.kind), "write a list like [{name: .., columns: [a, b]}]", ()),
    comment=_COMMENT,
)
TABLE = Form(
    "primary_key",
    "row_id",
    change=Key(either(choice("content"), WATERMARK.kind, QUERY.kind), _CHANGE, None),
    public=YES_OR_NO,
    empty=YES_OR_NO,
    comment=_COMMENT,
    row_id=Key(choice("generated"), "write row_id: generated where rows have no key, and no primary_key then", None),
    primary_key=Key(NAMES, _PRIMARY_KEY, None),
    foreign_keys=Key(anything(_LISTED), "list them as {columns:, references:, max_children:}", None),
    unique=Key(list_of(NAME_LIST), "write a list of lists of column names, like [[a, b], [c]]", ()),
    key_names=replace(KEY_COLUMNS, kind=named(NAMES), default=None),
    checks=Key(list_of(CHECK.kind), "write a list like [{name: .., expression: 'low <= high'}]", ()),
    indexes=Key(list_of(INDEX.kind), "write a list like [{name: .., columns: [a, b]}]; [] for none", None),
    dependencies=Key(list_of(DEPENDENCY.kind), "write a list like [{determinant: city, dependent: state}]", ()),
    row_order=Key(NAME, _ROW_ORDER, None),
    partitioned=Key(PARTITIONED.kind, "write {by:, columns:, partitions:}, or leave it out", None),
    heirs=Key(list_of(HEIR.kind), "write a list like [{name: pay_2024, checks: [..]}], or leave it out", ()),
    generated=Key(named(GENERATED.kind), "write a mapping like {total: {sql_type: integer, expression: a + b}}", None),
    columns=Key(named(either(COLUMN.keys["type"].kind, COLUMN.kind), 1), "list them as name: type"),
)
ENUM = Key(
    list_of(replace(_SCALAR, read=ColumnType.CATEGORY.logical.parse), 1),
    "list its values, each once and in their order",
)

# The whole file.
_PUBLIC_TEXT = (
    "the text of the queries is published, with their frequencies and pauses, so declare that these say nothing about "
    "private rows: write public: true (and literals: hide to publish no constant), or leave the workload out"
)
_OWNER = matching(r"[^@\s]+@[^@\s]+\.[^@\s]+|team:[A-Za-z0-9_-]+")
_OWNERS = 'list e-mail addresses or teams, like [data@example.org, "team:statistics"]'
_SCHEDULE = Key(Kind(_read_cron, TEXT.schema), 'write five cron fields in quotes, like "0 3 * * 1"', None)
SYNTHESIZER = Form(
    name=Key(NAME, "name a synthesizer, like privbench"),
    options=Key(named(anything({})), "write a mapping of parameters", None),
)
VIEW = Form(sql=Key(NAME, "write a SELECT in quotes"), materialized=YES_OR_NO)
WORKLOAD = Form(
    file=Key(NAME, "name a file of SELECT statements, like queries.sql"),
    public=Key(Kind(lambda value: value if value is True else None, {"const": True}), _PUBLIC_TEXT),
    literals=Key(choice("rebind", "hide"), "write hide to publish no constant of the queries, or rebind", "rebind"),
)
SPEC = Form(
    database=Key(NAME, "name the database"),
    source=Key(NAME, "write a folder, a DuckDB file or a URL"),
    schemas=Key(NAME_LIST, "list schemas of a PostgreSQL source, like [public, billing], or leave it out", ()),
    privacy=Key(PRIVACY.kind, "declare unit, delta, epsilons and lifetime"),
    synthesizer=Key(anything(either(NAME, SYNTHESIZER.kind).schema), "name a synthesizer, like privbench", None),
    fidelity=Key(FIDELITY.kind, "write a mapping like {block: true}", None),
    schedule=_SCHEDULE,
    owners=Key(either(list_of(_OWNER, 1), _OWNER), _OWNERS, ()),
    observe=_SCHEDULE,
    state=Key(NAME, "write a folder", None),
    engine=Key(Kind(as_name, {"enum": [*ENGINES]}), f"write one of {', '.join(ENGINES)}", DEFAULT_ENGINE),
    cluster=Key(anything(TEXT.schema), "write sc://host:port, or ${VARIABLE}", None),
    workload=Key(WORKLOAD.kind, f"write {{file: queries.sql, public: true}}: {_PUBLIC_TEXT}", None),
    enums=Key(named(ENUM.kind), "write a mapping of names to lists of values, like {mood: [calm, cross]}", None),
    tables=Key(named(TABLE.kind, 1), "list them as name: {primary_key:, columns:}"),
    views=Key(named(VIEW.kind), "write a mapping like {shown: {sql: SELECT ..}}", None),
)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a spec, in draft 2020-12."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "privbench spec", **SPEC.schema}


if __name__ == "__main__":
    json.dump(json_schema(), sys.stdout, indent=2)
