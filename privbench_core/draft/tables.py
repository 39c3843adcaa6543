"""Draft one block of a spec per table: its keys, constraints and indexes, and a line per column with its domain.

The facts are the catalogue's; defaults that an owner may change come from names, checks and public example rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from privbench_core.backends.catalogue import Catalogue, FoundKey, FoundTable
from privbench_core.draft.columns import FROM_PARTITIONS, draft_columns, given, one_line
from privbench_core.draft.keys import usable_keys
from privbench_core.draft.names import own_name
from privbench_core.draft.related import related_lines
from privbench_core.draft.samples import SampleColumn
from privbench_core.draft.units import Role, Roles
from privbench_core.schema.checks import columns_of, enforceable_check, parse_check
from privbench_core.schema.columns import ColumnType, Values
from privbench_core.spec import forms
from privbench_core.spec.dump import dump_heir
from privbench_core.spec.fields import UNDECIDED, one_or_list
from privbench_core.spec.yaml_io import flow_yaml


def draft_table(
    table: FoundTable,
    catalogue: Catalogue,
    roles: Roles | None,
    samples: Mapping[str, SampleColumn],
    *,
    outside: Collection[str] = (),
) -> Iterator[str]:
    """Yield the lines of a table.

    Args:
        table: Its entry in the catalogue.
        catalogue: All tables.
        roles: Of the keys between private tables; None as long as nobody has decided whose rows are protected.
        samples: Types and domains in public example rows, by column; empty without any.
        outside: Tables whose rows can only be published as they are, so that their columns need no domain.
    """
    public = table.name in outside
    kept = set(table.usable)
    keys, implied, notes = usable_keys(table, catalogue)
    generated = [column for column, made_of in table.generated if kept.issuperset(made_of)]
    notes += [
        f"the computed column {column.name}, which needs {', '.join(missing)}"
        for column, made_of in table.generated
        if (missing := sorted(set(made_of) - kept))
    ]
    yield f"  {flow_yaml(table.name)}:"
    yield from (one_line(f"    # left out: {note}") for note in (*table.notes, *notes))
    if table.comment is not None:
        yield f"    comment: {flow_yaml(table.comment)}"
    primary = table.primary_key if kept.issuperset(table.primary_key) else ()
    guess = primary or _likely_key(table)
    guessed = " # guessed from the names"
    if guess:
        yield f"    primary_key: {flow_yaml(one_or_list(guess))}{'' if primary and not catalogue.proposed else guessed}"
    elif guess := _unique_within(table):
        yield f"    primary_key: {flow_yaml(one_or_list(guess))} # unique in the source, and never NULL"
    else:
        yield "    row_id: generated # the source declares no usable key; or write primary_key: .."
    if keys:
        yield f"    foreign_keys:{guessed if catalogue.proposed else ''}"
        for key in keys:
            place = (table.name, key.columns, key.parent)
            role = None if roles is None else roles.get(place, Role())
            yield from _foreign_key(table, key, role, numbered=not guess and place in (roles or {}))
        yield from (f"      - {_key_fields(table, key)} # follows from another key on these columns" for key in implied)
    unique = [group for group in table.unique if kept.issuperset(group) and group != guess]
    if unique:
        yield f"    unique: {flow_yaml([list(group) for group in unique])}"
    if names := {name: one_or_list(group) for group, name in table.key_names if group in {guess, *unique}}:
        yield f"    key_names: {flow_yaml(names)}"
    yield from _section("checks", list(_checks(table, kept)))
    if not public:
        yield from related_lines(replace(table, primary_key=guess))
    # By default there is one per foreign key, which the source may lack.
    lacking = "[]" if table.indexes is not None and keys else ""
    stored = kept.union(column.name for column in generated)
    yield from _section("indexes", list(_indexes(table, stored)), lacking)
    usable = replace(table, primary_key=guess, foreign_keys=tuple(keys))
    columns = list(draft_columns(table, usable, catalogue, roles or {}, samples, outside))
    yield from map(
        one_line, _partitioned(table, kept, public=public, bounded=any(FROM_PARTITIONS in c for c in columns))
    )
    yield from map(one_line, _heirs(table, usable, catalogue, stored))
    if generated:
        yield "    generated:"
        yield from (
            f"      {flow_yaml(column.name)}: {flow_yaml(forms.GENERATED.write(column))}" for column in generated
        )
    yield "    columns:"
    yield from columns


def _likely_key(table: FoundTable) -> tuple[str, ...]:
    own = own_name(table.name)
    usual = {"id", f"{own}_id".casefold(), f"{own}id".casefold()}
    found = tuple(name for name in table.usable if name.casefold() in usual)
    return found if len(found) == 1 else ()


def _unique_within(table: FoundTable) -> tuple[str, ...]:
    """Return the first set of columns that is as good as a primary key, and tells the rows of a parent apart."""
    always = {column.name for column in table.usable.values() if not column.nullable}
    references = {name for key in table.foreign_keys for name in key.columns}
    groups = (group for group in table.unique if always.issuperset(group) and references.intersection(group))
    return next((group for group in groups if not references.issuperset(group)), ())


def _foreign_key(table: FoundTable, key: FoundKey, role: Role | None, *, numbered: bool) -> Iterator[str]:
    """Yield the line of a key, after what to think of where its bound is not enforced.

    Args:
        table: Its table.
        key: The key.
        role: What it is for; None as long as nobody has decided whose rows are protected.
        numbered: Whether it leads to a private table from rows that have no key of their own: these are removed
            together with their parent, since their numbers follow from their values.
    """
    if role is None:
        yield f"      - {_key_fields(table, key)}"
        return
    yield from map(one_line, _to_decide(table, key, role, numbered=numbered))
    fields: dict[str, Any] = {}
    if role.bound is not None:
        fields["max_children_per_unit" if role.per_unit else "max_children"] = (
            UNDECIDED if role.undecided else role.bound
        )
    fields |= {name: True for name in ("owner", "same_unit") if getattr(role, name)}
    if role.may_stay and (role.undecided or role.stays):
        fields["on_unit_removed"] = UNDECIDED if role.undecided else "set null"
    if numbered and not role.owner and table.is_optional(key) and not key.cascades:
        yield one_line(f"      # rows without a key of their own are removed together with their row of {key.parent}")
        fields["on_unit_removed"] = "cascade"
    remark = ""
    if role.same_unit:
        remark = " # enforced: rows that refer to another unit are ignored"
    elif role.bound is not None and not role.undecided:
        remark = (
            " # enforced: rows beyond the bound are ignored"
            if role.owner
            else " # your promise: nothing enforces the bound"
        )
    if role.why:
        remark += f"{';' if remark else ' #'} owner, because {one_line(role.why)}"
    yield f"      - {_key_fields(table, key, fields)}{remark}"


def _to_decide(table: FoundTable, key: FoundKey, role: Role, *, numbered: bool) -> Iterator[str]:
    """Yield what an owner should know of a key whose bound is not enforced; arguments as of `_foreign_key`."""
    optional, is_self = table.is_optional(key), key.parent == table.name
    if role.may_stay and role.undecided:
        yield from _about_removal(key.parent, role)
    if role.undecided:
        own = "rows of its own table" if is_self else f"rows per row of {key.parent}"
        own = f"rows that refer to rows of {key.parent} of one unit" if role.per_unit else own
        hint = "" if is_self else "; or same_unit: true, which adds no noise, if both rows always belong to one unit"
        relies = f"Promise as few as you can: {role.noise_in_words}. The guarantee relies on it, nothing enforces it"
        if optional and not key.cascades and not numbered:
            relies = "A generous bound costs little; only the `relational` synthesizer relies on it"
        elif role.may_stay:
            relies = "With cascade, promise as few as you can: nothing enforces it. With set null, many cost little"
        yield f"      # decide: the most {own}, about {role.bound}? {relies}{hint}"
    if optional and key.cascades and (role.undecided or role.same_unit) and not is_self and not numbered:
        todo = "on_unit_removed: set null adds less noise, if rows may outlive their row in"
        yield f"      # {todo} {key.parent} (ON DELETE CASCADE)"


def _about_removal(parent: str, role: Role) -> Iterator[str]:
    """Yield what the owner of a required key should know to decide what becomes of a row without its parent."""
    yield f"      # decide what happens to a row when its row of {parent} is removed with its unit. on_unit_removed is"
    yield "      # - set null if the row stays and loses only this reference: little noise. Whatever else it says about"
    yield f"      #   that row of {parent} stays, and is protected only as data of the row's own unit."
    yield f"      # - cascade if the row is removed too. Noise grows with the bound below: {role.noise_in_words}."


def _key_fields(table: FoundTable, key: FoundKey, more: Mapping[str, Any] | None = None) -> str:
    there = {"table": key.parent, "columns": list(key.parent_columns)}
    fields: dict[str, Any] = {"columns": one_or_list(key.columns), "references": there, **(more or {})}
    fields |= {"optional": True} if table.is_optional(key) else {}
    return flow_yaml(fields | given(constraint=key.constraint, actions=key.actions))


def _checks(table: FoundTable, kept: set[str]) -> Iterator[str]:
    for check in table.checks:
        tree = parse_check(check.expression)
        if missing := (frozenset() if tree is None else columns_of(tree)) - kept:
            yield _without(check.name, missing)
        else:
            remark = "" if enforceable_check(check.expression) else " # kept in the DDL, not enforced while sampling"
            yield f"      - {{name: {flow_yaml(check.name)}, expression: {flow_yaml(check.expression)}}}{remark}"


def _indexes(table: FoundTable, kept: set[str]) -> Iterator[str]:
    for index in table.indexes or ():
        missing = set(index.columns) - kept
        yield _without(index.name, missing) if missing else f"      - {flow_yaml(forms.INDEX.write(index))}"


def _partitioned(table: FoundTable, kept: set[str], *, public: bool, bounded: bool) -> Iterator[str]:
    """Yield how the table is partitioned, with partitions for made-up rows that may be outside of those of the source.

    Args:
        table: The table.
        kept: Its columns in the spec.
        public: Whether its rows are published as they are.
        bounded: Whether the bounds of partitions are drafted as a domain.
    """
    found = table.partitioned
    if found is None:
        return
    if missing := set(found.columns) - kept:
        yield f"    # left out: the partitions, which need {', '.join(sorted(missing))}"
        return
    yield "    partitioned:"
    yield f"      by: {flow_yaml(found.by)}"
    yield f"      columns: {flow_yaml(one_or_list(found.columns))}"
    yield "      partitions:"
    yield from (f"        - {flow_yaml(forms.PARTITION.write(part))}" for part in found.partitions)
    column = table.column(found.columns[0])
    kind = column.type or ColumnType.TEXT
    domain = found.bounds(kind) if bounded else Values(column.values) if column.values else None
    nullable = column.nullable and column.name not in table.primary_key
    for rest in () if public else found.missing_partitions(own_name(table.name), domain, kind, nullable=nullable):
        yield f"        - {flow_yaml(forms.PARTITION.write(rest))} # for synthetic rows outside the rest"


def _heirs(table: FoundTable, usable: FoundTable, catalogue: Catalogue, kept: Collection[str]) -> Iterator[str]:
    """Yield the tables that inherit from one, with those of their keys and indexes that its entry in the spec allows.

    Args:
        table: The table.
        usable: With the keys that its entry has.
        catalogue: All tables.
        kept: Its columns in the spec.
    """
    referring = [key for each in catalogue.tables for key in each.foreign_keys if key.parent == table.name]
    if table.heirs and referring:
        names, key = (", ".join(each) for each in ([heir.name for heir in table.heirs], referring[0].columns))
        why = f"their rows are here, because ({key}) refers to it"
        yield f"    # left out: the tables {names}, which inherit from it: {why}"
        return
    groups, foreign = {usable.primary_key, *table.unique}, {key.columns for key in usable.foreign_keys}
    lines = []
    for heir in table.heirs:
        found = replace(
            heir,
            keys=tuple(key for key in heir.keys if key[0] in groups and set(key[0]) <= set(kept)),
            foreign_keys=tuple(key for key in heir.foreign_keys if key.columns in foreign),
            indexes=tuple(index for index in heir.indexes if set(index.columns) <= set(kept)),
        )
        lines.append(f"      - {flow_yaml(dump_heir(found))}")
        if found != heir:
            lines.append(f"      # left out: keys or indexes of {heir.name}, on columns or keys that are not here")
    yield from _section("heirs", lines)


def _without(name: str, missing: Iterable[str]) -> str:
    return one_line(f"      # left out: {flow_yaml(name)}, which needs {', '.join(sorted(missing))}")


def _section(name: str, lines: list[str], empty: str = "") -> Iterator[str]:
    """Yield the lines of a list, under its name if one of them is more than a comment; else ``empty``, if given."""
    if any(line.startswith("      - ") for line in lines):
        yield f"    {name}:"
    elif empty:
        yield f"    {name}: {empty}"
    yield from lines
