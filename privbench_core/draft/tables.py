"""Draft one block of a spec per table: keys, constraints and indexes around the lines of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from privbench_core.backends.catalogue import Catalogue, FoundKey, FoundTable
from privbench_core.draft.columns import draft_column, left_out, one_line
from privbench_core.draft.related import creation_of, follows, propose_bases, related_lines
from privbench_core.draft.samples import SampleColumn
from privbench_core.draft.units import Role, Roles
from privbench_core.schema.checks import columns_of, enforceable_check, parse_check
from privbench_core.schema.constraints import without_implied
from privbench_core.spec import forms
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
    kept = set(table.usable)
    keys, implied, notes = usable_keys(table, catalogue)
    generated = [column for column, made_of in table.generated if kept.issuperset(made_of)]
    notes += [
        f"the computed column {column.name}, because of {', '.join(missing)}"
        for column, made_of in table.generated
        if (missing := sorted(set(made_of) - kept))
    ]
    yield f"  {flow_yaml(table.name)}:"
    for note in (*table.notes, *notes):
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
    unique = [group for group in table.unique if kept.issuperset(group)]
    if unique:
        yield f"    unique: {flow_yaml([list(group) for group in unique])}"
    if names := {name: one_or_list(group) for group, name in table.key_names if group in {primary, *unique}}:
        yield f"    key_names: {flow_yaml(names)}"
    yield from _section("checks", list(_checks(table, kept)))
    if not public:
        yield from related_lines(replace(table, primary_key=guess))
    # By default there is one per foreign key, which the source may lack.
    lacking = "[]" if table.declares_indexes and keys else ""
    yield from _section("indexes", list(_indexes(table, kept.union(column.name for column in generated))), lacking)
    if generated:
        yield "    generated:"
        yield from (
            f"      {flow_yaml(column.name)}: {flow_yaml(forms.GENERATED.write(column))}" for column in generated
        )
    yield "    columns:"
    usable = replace(table, primary_key=guess, foreign_keys=tuple(keys))
    yield from _columns(table, usable, catalogue, roles, samples, public=public)


def _columns(
    table: FoundTable,
    usable: FoundTable,
    catalogue: Catalogue,
    roles: Roles | None,
    samples: Mapping[str, SampleColumn],
    *,
    public: bool,
) -> Iterator[str]:
    """Yield the lines of a table's columns; ``usable`` is the table with those keys alone that its spec declares."""
    in_keys, meaningful = usable.key_columns, _meaningful(usable, catalogue)
    bases = {name: base for name, base in propose_bases(table).items() if in_keys.isdisjoint((name, base.name))}
    above = _owner(table, usable.foreign_keys, catalogue, roles)
    creation = creation_of(above) if above else None
    for column in table.columns:
        if column.type is None:
            yield left_out(column)
            continue
        is_key = column.name in in_keys
        made = not public and (not is_key or column.name in meaningful)
        of_owner = f"{above.name}.{creation.name}" if above and creation and follows(column, creation) else ""
        yield draft_column(
            table,
            column,
            is_made=made,
            nullable=column.nullable and column.name not in usable.primary_key,
            sample=samples.get(column.name),
            base=bases.get(column.name) if made else None,
            of_owner="" if is_key else of_owner,
        )


def _owner(table: FoundTable, keys: Sequence[FoundKey], catalogue: Catalogue, roles: Roles | None) -> FoundTable | None:
    """Return the table of the owners of a table's rows, None if they may have none."""
    for key in keys:
        role = (roles or {}).get((table.name, key.columns, key.parent), Role())
        if role.owner and not table.is_optional(key):
            return catalogue.table(key.parent)
    return None


def _meaningful(table: FoundTable, catalogue: Catalogue) -> frozenset[str]:
    """Return the columns of a primary key that are no numbers of rows: the times in a key of several columns."""
    if len(table.primary_key) == 1:
        return frozenset()
    of_keys = {name for key in table.foreign_keys for name in key.columns}
    here = [key for other in catalogue.tables for key in other.foreign_keys if key.parent == table.name]
    of_keys |= {name for key in here for name in key.parent_columns}
    times = {name for name, column in table.usable.items() if column.type and column.type.logical.calendar}
    return frozenset(times.intersection(table.primary_key) - of_keys)


def _likely_key(table: FoundTable) -> tuple[str, ...]:
    usual = {"id", f"{table.name}_id".casefold(), f"{table.name}id".casefold()}
    found = tuple(name for name in table.usable if name.casefold() in usual)
    return found if len(found) == 1 else ()


def usable_keys(table: FoundTable, catalogue: Catalogue) -> tuple[list[FoundKey], list[FoundKey], list[str]]:
    """Return the keys that a spec can declare, those that they imply, and notes about the others."""
    kept = set(table.usable)
    usable = {other.name: set(other.usable) for other in catalogue.readable}
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
    required = {t.name: [key for key in t.foreign_keys if not t.is_optional(key)] for t in catalogue.tables}
    keys, implied = without_implied(keys, lambda name: required.get(name, ()))
    single: dict[frozenset[str], FoundKey] = {}
    for key in keys:
        first = single.setdefault(frozenset(key.columns), key)
        if first is not key:
            where = f"the foreign key on ({', '.join(key.columns)}) to {key.parent}"
            notes.append(f"{where}, because these columns have one to {first.parent} already")
    return list(single.values()), implied, notes


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
        if hint and not table.is_optional(key):
            hint += f"; on_unit_removed: set null beside it costs less noise, if rows outlive theirs in {key.parent}"
        rests = "It is not enforced, the promise rests on it"
        if table.is_optional(key) and not key.cascades and not numbered:
            rests = "A generous one costs little; synthesizer relational alone rests its promise on it"
        todo = f"decide: the most {own}, about {role.bound}? {rests}{hint}"
        yield one_line(f"      # {todo}")
    cascades = table.is_optional(key) and key.cascades and not role.owner
    if cascades and (role.undecided or role.same_unit) and key.parent != table.name and not numbered:
        todo = "on_unit_removed: set null costs less noise, unless rows must not outlive theirs in"
        yield one_line(f"      # {todo} {key.parent} (ON DELETE CASCADE)")
    fields: dict[str, Any] = {}
    if role.bound is not None:
        bounded = "max_children_per_unit" if role.per_unit else "max_children"
        fields = {bounded: UNDECIDED if role.undecided else role.bound}
    fields |= {name: True for name in ("owner", "same_unit") if getattr(role, name)}
    if numbered and not role.owner and table.is_optional(key) and not key.cascades:
        yield one_line(f"      # rows without a key of their own are removed together with their row of {key.parent}")
        fields["on_unit_removed"] = "cascade"
    remark = " # enforced: rows beyond it are ignored" if role.owner and role.bound is not None else ""
    remark = " # enforced: rows that leave the unit are ignored" if role.same_unit else remark
    if not (role.undecided or role.owner) and role.bound is not None:
        remark = " # promised: nothing enforces it"
    yield f"      - {_key_fields(table, key, fields)}{remark}"


def _key_fields(table: FoundTable, key: FoundKey, more: Mapping[str, Any] | None = None) -> str:
    there = {"table": key.parent, "columns": list(key.parent_columns)}
    fields: dict[str, Any] = {"columns": one_or_list(key.columns), "references": there, **(more or {})}
    fields |= {"optional": True} if table.is_optional(key) else {}
    texts = {"constraint": key.constraint, "actions": key.actions}
    return flow_yaml(fields | {name: text for name, text in texts.items() if text is not None})


def _checks(table: FoundTable, kept: set[str]) -> Iterator[str]:
    for check in table.checks:
        name, tree = flow_yaml(check.name), parse_check(check.expression)
        if missing := (frozenset() if tree is None else columns_of(tree)) - kept:
            yield f"      # left out: {name}, because of {', '.join(sorted(missing))}"
        else:
            enforced = enforceable_check(check.expression) is not None
            remark = "" if enforced else " # kept in the DDL, not enforced while sampling"
            yield f"      - {{name: {name}, expression: {flow_yaml(check.expression)}}}{remark}"


def _indexes(table: FoundTable, kept: set[str]) -> Iterator[str]:
    for index in table.indexes:
        if missing := set(index.columns) - kept:
            name = flow_yaml(index.name)
            yield one_line(f"      # left out: {name}, because of {', '.join(sorted(missing))}")
        else:
            yield f"      - {flow_yaml(forms.INDEX.write(index))}"


def _section(name: str, lines: list[str], empty: str = "") -> Iterator[str]:
    """Yield the lines of a list, under its name if one of them is more than a comment; else ``empty``, if given."""
    if any(line.startswith("      - ") for line in lines):
        yield f"    {name}:"
    elif empty:
        yield f"    {name}: {empty}"
    yield from lines
