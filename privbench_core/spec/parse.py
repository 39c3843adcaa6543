"""Parse the ``tables`` part of a spec into `Table` values, and report every mistake.

Rules on one key of a mapping are checked here; rules between columns, keys and tables in `spec.rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from privbench_core.errors import did_you_mean
from privbench_core.schema.columns import (
    Column,
    ColumnType,
    Domain,
    EnumType,
    IdentitySequence,
    Learn,
    Pattern,
    Range,
    Relative,
    Values,
)
from privbench_core.schema.constraints import Check, Dependency, ForeignKey, Index, without_implied
from privbench_core.schema.tables import Table
from privbench_core.schema.types.base import OrderedType
from privbench_core.schema.types.registry import known_sql_types, parse_sql_type
from privbench_core.spec import forms
from privbench_core.spec.ddl import parse_generated, parse_heirs, parse_partitioning
from privbench_core.spec.fields import Kind, Node, Problems
from privbench_core.spec.model import Change, VersionQuery, Watermark

_OPTIONS = ("precision", "scale", "max_length", "identity")  # of some types only
_TEXT_HINT = "write {pattern: a regular expression} or {faker: email}, or leave it out; or make it a category"


@dataclass(frozen=True)
class ParsedTables:
    """The parsed ``tables`` part.

    Attributes:
        tables: In spec order, without those that could not be parsed.
        orphans: ``refuse`` or ``drop`` per `ForeignKey.name`.
        changes: How a change is detected, for the tables whose content is not compared.
    """

    tables: tuple[Table, ...]
    orphans: dict[str, str]
    changes: dict[str, Change]


def parse_enums(node: Node) -> tuple[EnumType, ...]:
    """Return the enums of the whole database."""
    inner = node.inside("enums", where="enums")
    enums = []
    for name in inner.fields:
        values = inner.value(name, forms.ENUM) or ()
        if len(set(values)) < len(values):
            inner.wrong(name, forms.ENUM.todo)
        enums.append(EnumType(name, tuple(map(str, values))))
    return tuple(enums)


def parse_tables(raw: Mapping[str, Any], problems: Problems, enums: tuple[EnumType, ...] = ()) -> ParsedTables:
    """Read all tables; foreign keys last, because they need the primary keys of their parents."""
    enums_by_name = {enum.name: enum for enum in enums}
    nodes = {name: Node(name, content, problems) for name, content in raw.items() if isinstance(content, dict)}
    for name in (name for name in raw if name not in nodes):
        problems.add(name, "the table has no content", "give it a primary_key and columns")
    bare = {name: _table(node, enums_by_name) for name, node in nodes.items()}
    tables = {name: table for name, table in bare.items() if table is not None}
    orphans: dict[str, str] = {}
    keys = {name: _foreign_keys(nodes[name], tables, orphans) for name in tables}
    required = {name: [k for k in found if k.cascades and not k.optional] for name, found in keys.items()}
    parsed, changes = [], {}
    for name, table in tables.items():
        keys_known = table.primary_key and {column.name for column in table.columns}.issuperset(table.primary_key)
        if f"{name}.foreign_keys" in problems.broken or not keys_known:
            # Any column without a domain may be the one that a key means.
            problems.broken |= {f"{name}.{column.name}" for column in table.columns if column.domain is None}
        kept, implied = without_implied(keys[name], lambda parent: required.get(parent, ()))
        kept = _without_second_keys(kept, implied, problems)
        table = _with_enums(_with_keys(table, tuple(kept), tuple(implied)), enums_by_name)  # noqa: PLW2901
        parsed.append(table.emptied if table.empty else table)
        if not table.empty and (change := _change(nodes[name], public=table.public)):
            changes[name] = change
    return ParsedTables(tuple(parsed), orphans, changes)


def _table(node: Node, enums: Mapping[str, EnumType]) -> Table | None:
    """Return a table without its foreign keys, None if it has no columns."""
    found = node.read(forms.TABLE)
    numbered = node.has("row_id")
    if found["row_id"] and node.has("primary_key"):
        node.wrong("row_id", forms.TABLE.keys["row_id"].todo)
    if not (numbered or node.has("primary_key")):
        node.wrong("primary_key", forms.TABLE.keys["primary_key"].todo)
    if found["columns"] is None:
        return None
    columns = [_column(node, name, raw, enums) for name, raw in found["columns"].items()]
    key, row_id = found["primary_key"] or (), None
    if numbered:
        taken = {column.name.casefold() for column in columns}
        row_id = next(name for n in count() if (name := f"row_id{'_' * n}") not in taken)
        key, columns = (row_id,), [*columns, Column(row_id, ColumnType.INTEGER)]
    if found["public"]:  # published as it is: no column is modelled
        columns = [replace(column, relative=None) for column in columns]
    named_keys = node.inside("key_names")
    groups = [(named_keys.value(each, forms.KEY_COLUMNS), each) for each in named_keys.fields]
    indexes = node.items(found["indexes"], forms.INDEX, Index)
    table = Table(
        node.where,
        tuple(columns),
        key,
        public=found["public"],
        empty=found["empty"],
        unique=found["unique"],
        checks=node.items(found["checks"], forms.CHECK, Check),
        indexes=None if found["indexes"] is None else indexes,
        dependencies=node.items(found["dependencies"], forms.DEPENDENCY, Dependency),
        comment=found["comment"],
        key_names=tuple((group, each) for group, each in groups if group is not None),
        generated=parse_generated(node, enums),
        row_id=row_id,
        row_order=None if found["public"] else found["row_order"],
        partitioned=parse_partitioning(node),
        heirs=parse_heirs(node, found["heirs"]),
    )
    computed = {column.name for column in table.generated}
    named = [table.primary_key, *table.unique, (table.row_order,) if table.row_order else ()]
    named += [table.partitioned.columns] if table.partitioned else []
    named += [part for rule in table.dependencies for part in (rule.determinant, rule.dependent)]
    listed = [*indexes, *(index for heir in table.heirs for index in heir.indexes)]
    named += [tuple(name for name in index.columns if name not in computed) for index in listed]
    for group in named:
        _known_columns(group, table, node.problems)
    return table


def _column(table: Node, name: str, raw: object, enums: Mapping[str, EnumType]) -> Column:
    """Read one column: a mapping, or just the name of its type.

    A column of unknown type is reported and read as text, so that keys can still refer to it. Its ``sql_type`` may be
    one of the ``enums``.
    """
    node = Node(f"{table.where}.{name}", raw if isinstance(raw, dict) else {"type": raw}, table.problems)
    found, todo = node.read(forms.COLUMN), {name: key.todo for name, key in forms.COLUMN.keys.items()}
    types = [kind.value for kind in ColumnType]
    if found["type"] not in types:
        if node.has("type"):
            misspelt = isinstance(found["type"], str)
            node.wrong("type", did_you_mean(found["type"], types) if misspelt else todo["type"])
        return Column(name, ColumnType.TEXT, nullable=found["nullable"])
    kind, sql_type = ColumnType(found["type"]), found["sql_type"]
    if found["precision"] and found["scale"] and found["scale"] > found["precision"]:
        node.wrong("scale", todo["scale"])
    if "precision" in kind.logical.options and not (node.has("precision") and node.has("scale")):
        node.add("a decimal without precision and scale", "declare both, as in NUMERIC(8, 2)")
    for option in _OPTIONS:
        if node.has(option) and option not in kind.logical.options:
            *most, last = (other for other in ColumnType if option in other.logical.options)
            owners = f"{', '.join(most)} and {last}" if most else last
            node.add(f"{option} on a column of type {kind}", f"it belongs to {owners} columns; remove it")
    stored = None if sql_type is None else parse_sql_type(sql_type)
    if sql_type is not None and stored is None and sql_type not in enums:
        hint = did_you_mean(sql_type, [*enums, *known_sql_types()])
        node.wrong("sql_type", f"{hint} (or declare it under enums)")
    if found["sequence"] is not None and not found["identity"]:
        node.wrong("sequence", todo["sequence"])
    sequence = node.inside("sequence").build(forms.SEQUENCE, IdentitySequence)
    room = stored.length if stored and kind.logical.length_unit else None
    base, is_relative = found.pop("relative_to"), node.has("relative_to")
    meant = {
        "type": kind,
        "domain": None if is_relative else _domain(node, kind),
        "max_length": found["max_length"] or min(Column.max_length, room or Column.max_length),
        "sequence": None if sequence == IdentitySequence() else sequence,
        "relative": _relative(node, kind, base) if is_relative else None,
    }
    return Column(name, **found | meant)


def _relative(node: Node, kind: ColumnType, to: str | None) -> Relative | None:
    """Return what a column is relative to: the domain is then that of the difference."""
    if kind.difference is None:
        todo = "only whole numbers, decimals, dates, times and spans have exact differences"
        money = " (money in floats: type: decimal with sql_type: real)" if kind is ColumnType.FLOAT else ""
        node.add(f"relative_to on a column of type {kind}", f"{todo}{money}; remove it")
        return None
    if not node.has("domain"):
        what = "days" if kind is ColumnType.DATE else f"values of type {kind.difference}"
        todo = f"declare that of the difference, in {what}: {{min:, max:}}, or domain: learn (paid for)"
        node.add("relative_to without a domain", todo)
        return None
    domain = _domain(node, kind.difference)
    if isinstance(domain, Learn) and domain.listed:
        node.add("a list to learn (values: learn) of differences", "write domain: learn, for a range of them")
        return None
    return Relative(to, domain) if to is not None and domain is not None else None


def _domain(node: Node, kind: ColumnType) -> Domain | None:
    """Return the domain of a column of a known type; None if there is none, or one that is reported as wrong."""
    logical, raw, inner = kind.logical, node.fields.get("domain"), node.inside("domain")
    if raw is None:
        return None
    if logical.no_domain is not None:
        node.add(f"a domain on a column of type {kind}", logical.no_domain)
    elif raw == "learn" and (logical.structured or not kind.opaque):
        return Learn()
    elif logical.structured:
        node.wrong("domain", "write domain: learn (paid for), or leave it out: then only lengths are modelled")
    elif kind.opaque:
        return _opaque_domain(node, inner)
    elif "values" in inner.fields:
        return _values(inner, kind)
    elif isinstance(raw, dict) and isinstance(logical, OrderedType):
        return _range(inner, logical)
    else:
        shape = "{min:, max:}" if kind.ordered else "{values: [..]}"
        node.wrong("domain", f"declare domain: {shape}, or domain: learn (paid for)")
    return None


def _opaque_domain(node: Node, inner: Node) -> Pattern | None:
    if list(inner.fields) == ["pattern"]:
        return inner.build(forms.PATTERN, Pattern)
    if list(inner.fields) == ["faker"]:
        return inner.build(forms.FAKER, partial(Pattern, None))
    node.wrong("domain", _TEXT_HINT)
    return None


def _values(node: Node, kind: ColumnType) -> Values | Learn | None:
    raw, logical = node.read(forms.VALUES)["values"], kind.logical
    if raw == "learn" and kind is ColumnType.INTEGER:
        return Learn(listed=True)
    if raw == "learn":
        todo = "write domain: learn; only whole numbers learn either a range or a list"
        node.add(f"values: learn on a column of type {logical}", todo)
    elif not logical.listable:
        node.add(f"a list of values for the type {logical}", "declare domain: {min:, max:} instead")
    elif raw is not None:
        values = tuple(map(logical.parse, raw))
        if None in values:
            todo = f"each must be {logical.expected}; NULL is not listed but declared by nullable: true"
            node.add(f"values holds {raw[values.index(None)]!r}", todo)
        elif len(set(values)) < len(values):
            twice = next(value for value in values if values.count(value) > 1)
            node.add(f"values holds {twice!r} twice", "list each value once")
        else:
            return Values(tuple(value for value in values if value is not None))
    return None


def _range(node: Node, logical: OrderedType) -> Range | None:
    ends, steps = Kind(logical.parse, {}), Kind(logical.parse_step, {})
    found = node.build(forms.range_form(ends, steps, logical.expected, logical.step_expected), Range)
    if found is not None and logical.sort_key(found.low) > logical.sort_key(found.high):
        node.add(f"min {found.low!r} is above max {found.high!r}", "swap or correct them")
        return None
    return found


def _change(node: Node, *, public: bool) -> Change | None:
    """Return how a change of a table is detected, None if its content is compared.

    A public table is published row by row, so no change of it may be missed.
    """
    inner = node.inside("change", where=f"{node.where}.change")
    if not isinstance(node.fields.get("change"), dict):
        return None
    if public:
        node.wrong("change", "a public table is published as it is, so its content is compared; remove the line")
    elif len(inner.fields) != 1:
        node.wrong("change", forms.TABLE.keys["change"].todo)
    elif "sql" in inner.fields:
        return inner.build(forms.QUERY, VersionQuery)
    else:
        return inner.build(forms.WATERMARK, Watermark)
    return None


def _known_columns(names: tuple[str, ...], table: Table, problems: Problems) -> bool:
    """Return whether a table has all these columns, and report each unknown one."""
    known = [column.name for column in table.columns]
    unknown = [name for name in names if name not in known]
    for name in unknown:
        if f"{table.name}.{name}" not in problems.broken:
            problems.add(f"{table.name}.{name}", "no such column", did_you_mean(name, known))
    return not unknown


def _foreign_keys(node: Node, tables: Mapping[str, Table], orphans: dict[str, str]) -> list[ForeignKey]:
    """Return the keys of a table but for those reported as wrong, and enter in ``orphans`` what is done with theirs."""
    listed = node.fields.get("foreign_keys") or []
    keys: list[ForeignKey] = []
    for item in listed if isinstance(listed, list) else [listed]:
        if not isinstance(item, dict):
            node.add("a foreign key is not a mapping", "write {columns:, references:, max_children:}")
            node.problems.broken.add(f"{node.where}.foreign_keys")
        elif key := _foreign_key(replace(node, fields=item), tables[node.where], tables):
            # Of two keys on the same columns one follows from the other, and drops with it.
            drops = "drop" in (item.get("on_orphan"), orphans.get(key.name))
            orphans[key.name] = "drop" if drops else "refuse"
            keys.append(key)
        else:
            columns = item.get("columns")
            broken = [*(columns if isinstance(columns, list) else [columns]), "foreign_keys"]
            node.problems.broken.update(f"{node.where}.{name}" for name in broken)
    return keys


def _without_second_keys(keys: list[ForeignKey], implied: list[ForeignKey], problems: Problems) -> list[ForeignKey]:
    """Return the first key on each set of columns; report others, and declarations that an implied key cannot have."""
    first: dict[frozenset[str], ForeignKey] = {}
    for key in keys:
        other = first.setdefault(frozenset(key.columns), key)
        if other is not key:
            found = f"two foreign keys on the same columns, to {other.parent} and to {key.parent}"
            todo = f"keep one, or declare a required key of {other.parent} that leads to {key.parent} (or the reverse)"
            problems.add(key.name, found, todo)
    for key in implied:
        if key.owner or key.same_unit or key.on_unit_removed is not None or key.max_children is not None:
            found = f"the key to {key.parent} follows from the other one on the same columns"
            problems.add(key.name, found, "declare owner, max_children, same_unit and on_unit_removed on that one")
    return list(first.values())


def _foreign_key(bare: Node, table: Table, tables: Mapping[str, Table]) -> ForeignKey | None:
    """Return a foreign key, None if it is reported as wrong."""
    columns = bare.value("columns", forms.FOREIGN_KEY.keys["columns"])
    if columns is None or not _known_columns(columns, table, bare.problems):
        return None
    node = replace(bare, where=ForeignKey(table.name, columns, "", ()).name)
    found = node.read(forms.FOREIGN_KEY)
    del found["on_orphan"]
    reference = node.inside("references", short="table")
    target = None if found.pop("references") is None else reference.build(forms.REFERENCE, lambda *parts: parts)
    if target is None:
        return None
    parent, wanted = target
    if parent not in tables:
        if parent not in node.problems.broken:  # else the parent is in the spec, and its own mistake is reported
            node.add(f"references {parent!r}, which is not a table", did_you_mean(parent, tables))
        return None
    above = tables[parent]
    wanted = wanted or above.primary_key
    if above.row_id in wanted:
        todo = f"name the columns, {{table: {parent}, columns: [..]}}, and declare them unique there"
        node.add(f"references {parent}, whose rows have no key (row_id: generated)", todo)
        return None
    if not wanted or not above.primary_key or not _known_columns(wanted, above, node.problems):
        return None
    if len(wanted) != len(columns):
        mistake = f"{len(columns)} column(s) refer to {len(wanted)} column(s) of {parent}"
        node.add(mistake, f"list one column for each of ({', '.join(wanted)})")
        return None
    # Canonical order: that of the parent's own key, primary or unique.
    order = next((group for group in (above.primary_key, *above.unique) if set(group) == set(wanted)), wanted)
    pairs = sorted(zip(wanted, columns, strict=True), key=lambda pair: order.index(pair[0]))
    if not node.has("max_children"):  # the rows that refer to one row are some of those that refer to its unit
        found["max_children"] = found["max_children_per_unit"]
    if found["max_children"] is None and (node.has("max_children") or node.has("max_children_per_unit")):
        found["max_children"] = 1  # reported already, so not also as missing
    ends = {"columns": tuple(own for _, own in pairs), "parent_columns": tuple(there for there, _ in pairs)}
    return ForeignKey(table.name, parent=parent, **found | ends)


def _with_keys(table: Table, keys: tuple[ForeignKey, ...], implied: tuple[ForeignKey, ...]) -> Table:
    """Return the table with its foreign keys; columns of an optional key become nullable if none is declared so."""
    fixed = set(table.primary_key).union(*(key.columns for key in keys if not key.optional))
    nullable = {column.name for column in table.columns if column.nullable}
    for key in keys:
        if key.optional and nullable.isdisjoint(key.columns):
            nullable |= set(key.columns) - fixed
    columns = tuple(replace(column, nullable=column.name in nullable) for column in table.columns)
    return replace(table, columns=columns, foreign_keys=keys, implied_keys=implied)


def _with_enums(table: Table, enums: Mapping[str, EnumType]) -> Table:
    """Return the table with the values of its enums as the domains of categories without a declared one."""
    keys = table.key_columns

    def with_values(column: Column) -> Column:
        enum = enums.get(column.sql_type or "")
        open_list = column.type is ColumnType.CATEGORY and column.domain is None and column.name not in keys
        return replace(column, domain=Values(enum.values)) if enum and open_list else column

    return replace(table, columns=tuple(map(with_values, table.columns)))
