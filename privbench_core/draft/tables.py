"""Draft one block of a spec per table: keys, constraints and indexes around the lines of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundKey, FoundTable
from privbench_core.draft.columns import draft_column, left_out, one_line
from privbench_core.draft.owners import Role, Roles, is_optional
from privbench_core.draft.related import creation_of, follows, propose_bases, related_lines
from privbench_core.draft.samples import SampleColumn
from privbench_core.schema.checks import columns_of, enforceable_check, parse_check
from privbench_core.schema.columns import Generated
from privbench_core.schema.constraints import Check
from privbench_core.schema.implied_keys import without_implied
from privbench_core.spec.dump import dump_generated, dump_index
from privbench_core.spec.fields import UNDECIDED, one_or_list
from privbench_core.spec.yaml_io import flow_yaml


def draft_table(
    table: FoundTable,
    catalogue: Catalogue,
    roles: Roles | None,
    samples: Mapping[str, SampleColumn],
    *,
    public: bool = False,
) -> Iterator[str]:
    """Yield the lines of a table.

    Args:
        table: Its entry in the catalogue.
        catalogue: All tables.
        roles: Of the keys between private tables; None as long as nobody has decided whose rows are protected.
        samples: Types and domains in public example rows, by column; empty without any.
        public: Whether its rows can only be published as they are, so that its columns need no domain.
    """
    kept = {column.name for column in table.columns if column.type is not None}
    keys, implied, notes = usable_keys(table, catalogue)
    generated, more = _generated(table, kept)
    yield f"  {flow_yaml(table.name)}:"
    for note in (*table.notes, *notes, *more):
        yield one_line(f"    # left out: {note}")
    if table.comment is not None:
        yield f"    comment: {flow_yaml(table.comment)}"
    primary = table.primary_key if kept.issuperset(table.primary_key) else ()
    guess = primary or _likely_key(table)
    if guess:
        remark = "" if primary and not catalogue.proposed else " # guessed from the names"
        yield f"    primary_key: {flow_yaml(one_or_list(guess))}{remark}"
    else:
        yield "    row_id: generated # the source declares no key that can be used; or primary_key: .."
    if keys:
        yield f"    foreign_keys:{' # guessed from the names' if catalogue.proposed else ''}"
        for key in keys:
            place = (table.name, key.columns, key.parent)
            role = None if roles is None else roles.get(place, Role())
            yield from _foreign_key(table, key, role, numbered=not guess and place in (roles or {}))
        yield from (f"      - {_key_fields(table, key)} # follows from another key on these columns" for key in implied)
    yield from _unique(table, primary, kept)
    yield from _checks(table, kept)
    if not public:
        yield from related_lines(replace(table, primary_key=guess))
    yield from _indexes(table, kept | {column.name for column in generated}, has_keys=bool(keys))
    if generated:
        yield "    generated:"
        yield from (f"      {flow_yaml(column.name)}: {flow_yaml(dump_generated(column))}" for column in generated)
    yield "    columns:"
    in_keys = set(guess).union(*(key.columns for key in keys))
    meaningful = _meaningful(table, guess, keys, catalogue)
    bases = {name: base for name, base in propose_bases(table).items() if in_keys.isdisjoint((name, base.name))}
    of_owner, creation = _creation(table, keys, catalogue, roles)
    for column in table.columns:
        if column.type is None:
            yield left_out(column)
        else:
            nullable = column.nullable and column.name not in guess
            sample = samples.get(column.name)
            made = not public and (column.name not in in_keys or column.name in meaningful)
            base = bases.get(column.name) if made else None
            above = (
                of_owner if creation is not None and column.name not in in_keys and follows(column, creation) else ""
            )
            yield draft_column(table, column, is_made=made, nullable=nullable, sample=sample, base=base, of_owner=above)


def _creation(
    table: FoundTable, keys: list[FoundKey], catalogue: Catalogue, roles: Roles | None
) -> tuple[str, FoundColumn | None]:
    """Return when the owners of a table's rows began: the name of the column for ``relative_to``, and the column."""
    for key in keys:
        role = (roles or {}).get((table.name, key.columns, key.parent), Role())
        if role.owner and not is_optional(table, key):
            creation = next(creation_of(other) for other in catalogue.tables if other.name == key.parent)
            return f"{key.parent}.{creation.name}" if creation else "", creation
    return "", None


def _meaningful(
    table: FoundTable, primary: tuple[str, ...], keys: list[FoundKey], catalogue: Catalogue
) -> frozenset[str]:
    """Return the columns of a primary key that are no numbers of rows: the times in a key of several columns."""
    of_keys = {name for key in keys for name in key.columns}
    for other in catalogue.tables:
        of_keys |= {name for key in other.foreign_keys if key.parent == table.name for name in key.parent_columns}
    times = {column.name for column in table.columns if column.type is not None and column.type.logical.calendar}
    return frozenset(times.intersection(primary) - of_keys) if len(primary) > 1 else frozenset()


def _unique(table: FoundTable, primary: tuple[str, ...], kept: set[str]) -> Iterator[str]:
    """Yield the unique sets, and the names of keys."""
    unique = [group for group in table.unique if kept.issuperset(group)]
    if unique:
        yield f"    unique: {flow_yaml([list(group) for group in unique])}"
    names = {name: one_or_list(group) for group, name in table.key_names if group in {primary, *unique}}
    if names:
        yield f"    key_names: {flow_yaml(names)}"


def _likely_key(table: FoundTable) -> tuple[str, ...]:
    usual = {"id", f"{table.name}_id".casefold(), f"{table.name}id".casefold()}
    found = [column.name for column in table.columns if column.name.casefold() in usual and column.type is not None]
    return tuple(found) if len(found) == 1 else ()


def usable_keys(table: FoundTable, catalogue: Catalogue) -> tuple[list[FoundKey], list[FoundKey], list[str]]:
    """Return the keys that a spec can declare, those that they imply, and notes about the others."""
    kept = {column.name for column in table.columns if column.type is not None}
    usable = {
        other.name: {column.name for column in other.columns if column.type is not None}
        for other in catalogue.tables
        if not other.unreadable
    }
    keys: list[FoundKey] = []
    notes: list[str] = []
    for key in table.foreign_keys:
        where = f"the foreign key on ({', '.join(key.columns)})"
        if key.parent not in usable:
            there = any(other.name == key.parent for other in catalogue.tables)
            notes.append(f"{where}, because {key.parent} {'may not be read' if there else 'is not in this source'}")
        elif not (kept.issuperset(key.columns) and usable[key.parent].issuperset(key.parent_columns)):
            notes.append(f"{where}, because one of its columns is left out")
        else:
            keys.append(key)
    required = {
        other.name: [key for key in other.foreign_keys if not is_optional(other, key)] for other in catalogue.tables
    }
    keys, implied = without_implied(keys, lambda name: required.get(name, ()))
    single: dict[frozenset[str], FoundKey] = {}
    for key in keys:
        first = single.setdefault(frozenset(key.columns), key)
        if first is not key:
            where = f"the foreign key on ({', '.join(key.columns)}) to {key.parent}"
            notes.append(f"{where}, because these columns have one to {first.parent} already")
    return list(single.values()), implied, notes


def _generated(table: FoundTable, kept: set[str]) -> tuple[list[Generated], list[str]]:
    """Return the computed columns, and notes on those computed from a column that is left out."""
    generated, notes = [], []
    for column, made_of in table.generated:
        if kept.issuperset(made_of):
            generated.append(column)
        else:
            missing = ", ".join(sorted(set(made_of) - kept))
            notes.append(f"the computed column {column.name}, because of {missing}")
    return generated, notes


def _foreign_key(table: FoundTable, key: FoundKey, role: Role | None, *, numbered: bool) -> Iterator[str]:
    """Yield the line of a key, and what to think of before one whose bound is not enforced.

    Args:
        table: The key's table.
        key: The key.
        role: What it is for units; None where no unit is known, or the parent is public.
        numbered: Whether rows are identified by their values (``row_id``), so that none of these may become NULL where
            a row of a private parent goes.
    """
    if role is None:
        yield f"      - {_key_fields(table, key)}"
        return
    if role.undecided:
        own = "rows of its own table" if key.parent == table.name else f"rows per row of {key.parent}"
        own = f"rows that refer to rows of {key.parent} of one unit" if role.per_unit else own
        hint = "" if key.parent == table.name else "; or same_unit: true if it never leaves the unit"
        if hint and not is_optional(table, key):
            hint += f"; on_unit_removed: set null beside it costs less noise, if rows outlive theirs in {key.parent}"
        rests = "It is not enforced, the promise rests on it"
        if is_optional(table, key) and not _cascades(key) and not numbered:
            rests = "A generous one costs little; synthesizer relational alone rests its promise on it"
        todo = f"decide: the most {own}, about {role.bound}? {rests}{hint}"
        yield one_line(f"      # {todo}")
    cascades = is_optional(table, key) and _cascades(key) and not role.owner
    if cascades and (role.undecided or role.same_unit) and key.parent != table.name and not numbered:
        todo = "on_unit_removed: set null costs less noise, unless rows must not outlive theirs in"
        yield one_line(f"      # {todo} {key.parent} (ON DELETE CASCADE)")
    fields: dict[str, Any] = {}
    if role.bound is not None:
        bounded = "max_children_per_unit" if role.per_unit else "max_children"
        fields = {bounded: UNDECIDED if role.undecided else role.bound}
    fields |= {name: True for name in ("owner", "same_unit") if getattr(role, name)}
    if numbered and not role.owner and is_optional(table, key) and not _cascades(key):
        yield one_line(f"      # rows without a key of their own are removed together with their row of {key.parent}")
        fields["on_unit_removed"] = "cascade"
    remark = " # enforced: rows beyond it are ignored" if role.owner and role.bound is not None else ""
    remark = " # enforced: rows that leave the unit are ignored" if role.same_unit else remark
    if not (role.undecided or role.owner) and role.bound is not None:
        remark = " # promised: nothing enforces it"
    yield f"      - {_key_fields(table, key, fields)}{remark}"


def _cascades(key: FoundKey) -> bool:
    """Return whether the source removes rows together with the row that they refer to along the key."""
    return "ON DELETE CASCADE" in (key.actions or "")


def _key_fields(table: FoundTable, key: FoundKey, more: Mapping[str, Any] | None = None) -> str:
    there = {"table": key.parent, "columns": list(key.parent_columns)}
    fields: dict[str, Any] = {"columns": one_or_list(key.columns), "references": there, **(more or {})}
    fields |= {"optional": True} if is_optional(table, key) else {}
    texts = {"constraint": key.constraint, "actions": key.actions}
    return flow_yaml(fields | {name: text for name, text in texts.items() if text is not None})


def _checks(table: FoundTable, kept: set[str]) -> Iterator[str]:
    lines = []
    for check in table.checks:
        missing = _columns(check) - kept
        if missing:
            lines.append(f"      # left out: {flow_yaml(check.name)}, because of {', '.join(sorted(missing))}")
            continue
        remark = (
            " # kept in the DDL, not enforced while sampling" if enforceable_check(check.expression) is None else ""
        )
        lines.append(f"      - {{name: {flow_yaml(check.name)}, expression: {flow_yaml(check.expression)}}}{remark}")
    if any(line.startswith("      - ") for line in lines):
        yield "    checks:"
    yield from lines


def _indexes(table: FoundTable, kept: set[str], *, has_keys: bool) -> Iterator[str]:
    """Yield the indexes; an empty list if the default, one per foreign key, would add some that the source lacks."""
    lines = []
    for index in table.indexes:
        missing = set(index.columns) - kept
        if missing:
            name = flow_yaml(index.name)
            lines.append(one_line(f"      # left out: {name}, because of {', '.join(sorted(missing))}"))
        else:
            lines.append(f"      - {flow_yaml(dump_index(index))}")
    if any(line.startswith("      - ") for line in lines):
        yield "    indexes:"
    elif table.declares_indexes and has_keys:
        yield "    indexes: []"
    yield from lines


def _columns(check: Check) -> frozenset[str]:
    tree = parse_check(check.expression)
    return frozenset() if tree is None else columns_of(tree)
