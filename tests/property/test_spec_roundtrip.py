"""Any valid spec survives being dumped and loaded, whatever its names and values look like to YAML."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from privbench_core.schema.columns import (
    Column,
    ColumnType,
    Domain,
    EnumType,
    Generated,
    IdentitySequence,
    Learn,
    Pattern,
    Range,
    Relative,
    Values,
)
from privbench_core.schema.constraints import Check, Dependency, ForeignKey, Index
from privbench_core.schema.tables import Schema, Table
from privbench_core.schema.types.durations import duration_text
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import Spec, VersionQuery, Watermark

# Words that some version of YAML reads as something other than text, beside ordinary ones.
TRICKY = ["no", "On", "y", "null", "~", "1e5", "007", "0x1f", "1_000", "12:30", "2020-01-01", "<<", "- a", "a: b", "#x"]
LETTERS = st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"])
words = (st.sampled_from(TRICKY) | st.text(LETTERS, min_size=1)).filter(lambda word: word.strip() and word != "CHOOSE")


def range_of(values: st.SearchStrategy[int] | st.SearchStrategy[float]) -> st.SearchStrategy[Range]:
    cells = st.none() | st.integers(1, 500)
    return st.tuples(values, values, cells).map(lambda t: Range(min(t[:2]), max(t[:2]), t[2]))


def lists_of(values: st.SearchStrategy[str] | st.SearchStrategy[int]) -> st.SearchStrategy[Values]:
    return st.lists(values, min_size=1, max_size=4, unique=True).map(lambda found: Values(tuple(found)))


DOMAINS: dict[ColumnType, st.SearchStrategy[Domain | None]] = {
    ColumnType.INTEGER: range_of(st.integers(-(2**63), 2**63 - 1)) | lists_of(st.integers(-9, 9)) | st.just(Learn()),
    ColumnType.FLOAT: range_of(st.floats(allow_nan=False, allow_infinity=False)) | st.just(Learn()),
    ColumnType.DECIMAL: range_of(st.integers(-99, 99))
    | st.just(Range("-0.50", "1.25", step="0.25"))
    | st.just(Learn()),
    ColumnType.DATE: st.dates().map(lambda day: Range(day.isoformat(), "9999-12-31")),
    ColumnType.TIMESTAMP: st.datetimes().map(lambda time: Range("0001-01-01T00:00:00", time.isoformat(), step="PT1M")),
    ColumnType.CATEGORY: lists_of(words) | st.just(Learn()),
    ColumnType.BOOLEAN: st.none(),
    ColumnType.TEXT: st.none()
    | st.sampled_from(["[a-z]+@[a-z]+", "007", "no", "'#: {"]).map(lambda regex: Pattern(regex=regex))
    | st.sampled_from(["email", "name", "no"]).map(lambda provider: Pattern(provider=provider)),
    ColumnType.TIMESTAMPTZ: st.datetimes().map(lambda time: Range("0001-01-01T00:00:00Z", f"{time.isoformat()}Z"))
    | st.just(Learn()),
    ColumnType.INTERVAL: range_of(st.integers(-(10**15), 10**15)).map(
        lambda found: Range(duration_text(int(found.low)), duration_text(int(found.high)), found.cells)
    ),
    ColumnType.UUID: st.none(),
    ColumnType.BYTES: st.none(),
    ColumnType.JSON: st.none() | st.just(Learn()),
}
SQL_TYPES = {
    ColumnType.INTEGER: "int8",
    ColumnType.DECIMAL: "NUMERIC",
    ColumnType.FLOAT: "real",
    ColumnType.TIMESTAMP: "timestamp(3) without time zone",
    ColumnType.JSON: "jsonb",
    ColumnType.UUID: "varchar(36)",
    ColumnType.CATEGORY: "text",
}
SIZED = {ColumnType.TEXT, ColumnType.BYTES, ColumnType.JSON}
ACTIONS = st.none() | st.sampled_from(["ON DELETE CASCADE", "ON UPDATE SET NULL DEFERRABLE INITIALLY DEFERRED"])
ENUM = EnumType("mood x", ("no", "1e5", "it's", ""))


CHANGES = words.map(Watermark) | words.map(VersionQuery)


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    kind = draw(st.sampled_from(list(ColumnType)))
    digits = (8, draw(st.integers(0, 8))) if kind is ColumnType.DECIMAL else (None, None)
    length = draw(st.integers(1, 99)) if kind in SIZED else 64
    texts = st.none() | words
    if kind is ColumnType.CATEGORY and draw(st.booleans()):
        domain = Values(draw(st.sampled_from([ENUM.values, ENUM.values[:2]])))
        return Column(name, kind, domain, draw(st.booleans()), sql_type=ENUM.name, comment=draw(texts))
    identity = kind is ColumnType.INTEGER and draw(st.booleans())
    return Column(
        name,
        kind,
        draw(DOMAINS[kind]),
        not identity and draw(st.booleans()),
        *digits,
        max_length=length,
        sql_type=draw(st.none() | st.just(SQL_TYPES.get(kind))),
        default=None if identity else draw(st.none() | st.sampled_from(["1e5", "'no'", "now()", "NULL"])),
        identity=identity,
        comment=draw(texts),
        sequence=draw(st.none() | st.builds(IdentitySequence, increment=st.integers(2, 9), always=st.booleans()))
        if identity
        else None,
    )


@st.composite
def related(draw: st.DrawFn, found: list[Column]) -> list[Column]:
    """Some columns relative to an earlier one of their type."""
    result: list[Column] = []
    for column in found:
        like = [c.name for c in result if (c.type, c.scale) == (column.type, column.scale) and not c.nullable]
        if like and column.type.difference and not column.identity and draw(st.booleans()):
            domain = draw(DOMAINS[column.type.difference].filter(lambda domain: domain is not None))
            assert domain is not None
            base = Relative(draw(st.sampled_from(like)), domain)
            result.append(replace(column, domain=None, relative=base))
        else:
            result.append(column)
    return result


@st.composite
def extras(draw: st.DrawFn, table: Table) -> Table:
    names = [column.name for column in table.columns]
    attributes = [column.name for column in table.attributes]
    checks = draw(st.lists(words, max_size=2, unique=True))
    rules = [Dependency(("key",), (attributes[0],))] if attributes and draw(st.booleans()) else []
    using = draw(st.none() | st.sampled_from(["btree (key DESC)", "gin (lower('#: no')) WHERE key > 0"]))
    indexes = draw(st.none() | st.just(()) | st.just((Index(f"by {table.name}", tuple(names), using),)))
    named = draw(st.none() | words.map(lambda word: f"{table.name} {word}"))
    # Every name is used once, as the spec demands.
    free = st.none() | words.filter(lambda word: word not in checks)
    up = [replace(key, constraint=draw(free), actions=draw(ACTIONS)) for key in table.foreign_keys]
    made = Generated("made of", draw(st.sampled_from(["text[]", ENUM.name])), "'#: ' || key", draw(st.booleans()))
    return replace(
        table,
        foreign_keys=tuple(up),
        key_names=((table.primary_key, named),) if named else (),
        generated=(made,) if draw(st.booleans()) else (),
        unique=((names[-1],),) if len(names) > 2 and draw(st.booleans()) else (),
        checks=tuple(Check(name, "\"key\" > 0 OR '#: no' = ''") for name in checks),
        indexes=indexes,
        dependencies=tuple(rules),
        comment=draw(st.none() | words),
    )


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    tables: list[Table] = []
    for level, name in enumerate(("unit", "no", "1e5")):
        names = draw(st.lists(words, max_size=3, unique_by=str.casefold))
        keys = {"key", "up"}
        attributes = [draw(columns(found)) for found in names if found.casefold() not in keys]
        children = draw(st.integers(1, 9))
        up = ForeignKey(name, ("up",), tables[-1].name, ("key",), children, owner=True) if level else None
        numbers = [Column("key", ColumnType.INTEGER), *([Column("up", ColumnType.INTEGER)] if up else [])]
        found = [*numbers, *draw(related(attributes))]
        tables.append(draw(extras(Table(name, tuple(found), ("key",), (up,) if up else ()))))
    orphans = {"no.up": draw(st.sampled_from(["refuse", "drop"])), "1e5.up": "refuse"}
    delta = draw(st.floats(1e-30, 0.5))
    epsilons = draw(st.lists(st.floats(1e-3, 10), min_size=1, max_size=3, unique=True))
    options = draw(st.dictionaries(words, st.integers() | words | st.booleans(), max_size=2))
    return Spec(
        Schema(draw(st.sampled_from(["shop", "on", "12"])), tuple(tables), "unit", (ENUM,)),
        source="postgresql://u@h/d",
        path=Path("spec.yaml"),
        epsilons=tuple(epsilons),
        delta=delta,
        lifetime_epsilon=draw(st.floats(10, 100)),
        lifetime_delta=delta,
        options=options,
        orphans=orphans,
        observe=draw(st.none() | st.just("*/5 * * * *")),
        changes=draw(st.dictionaries(st.sampled_from(["unit", "no", "1e5"]), CHANGES, max_size=3)),
    )


@settings(max_examples=60, deadline=None)
@given(specs())
def test_dump_and_load_are_inverse(spec: Spec) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        path.write_text(dump_spec(spec), encoding="utf-8")
        loaded = load_spec(path)
    assert loaded.schema == spec.schema
    assert (loaded.source, loaded.orphans, loaded.options) == (spec.source, spec.orphans, spec.options)
    for name in (
        "epsilons",
        "delta",
        "lifetime_epsilon",
        "lifetime_delta",
        "synthesizer",
        "schedule",
        "observe",
        "changes",
    ):
        assert getattr(loaded, name) == getattr(spec, name)
