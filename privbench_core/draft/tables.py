"""Draft one block of a spec per table: keys, constraints and indexes around the lines of its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from privbench_core.backends.catalogue import Catalogue, FoundKey, FoundTable
from privbench_core.draft.columns import draft_column, left_out, one_line
from privbench_core.draft.samples import SampleColumn
from privbench_core.schema.checks import columns_of, parse_check
from privbench_core.schema.columns import Generated
from privbench_core.schema.constraints import Check
from privbench_core.schema.implied_keys import without_implied
from privbench_core.spec.dump import dump_generated, dump_index, one_or_list
from privbench_core.spec.fields import UNDECIDED
from privbench_core.spec.yaml_io import flow_yaml


def draft_table(
    table: FoundTable, catalogue: Catalogue, unit: str, samples: Mapping[str, SampleColumn]
) -> Iterator[str]:
    """Yield the lines of a table.

    Args:
        table: Its entry in the catalogue.
        catalogue: All tables.
        unit: The likely privacy unit, or CHOOSE.
        samples: Types and domains in public example rows, by column; empty without any.
    """
    kept = {column.name for column in table.columns if column.type is not None}
    keys, implied, notes = _foreign_keys(table, catalogue, kept)
    generated, more = _generated(table, kept)
    yield f"  {flow_yaml(table.name)}:"
    for note in (*table.notes, *notes, *more):
        yield one_line(f"    # left out: {note}")
    yield from _path(table, catalogue, unit, keys)
    if table.comment is not None:
        yield f"    comment: {flow_yaml(table.comment)}"
    primary = table.primary_key if kept.issuperset(table.primary_key) else ()
    guess = primary or _likely_key(table)
    if primary:
        yield f"    primary_key: {_names(primary)}"
    else:
        why = "guessed from the name" if guess else "the source declares none that can be used"
        yield f"    primary_key: {_names(guess or (UNDECIDED,))} # decide: {why}"
    if keys:
        yield "    foreign_keys:"
        inside = _maybe_inside(table, catalogue, unit, keys)
        for key in keys:
            yield from _foreign_key(table, key)
            if key in inside:
                todo = f"same_unit: true if not the owner key, and always to a row of the same {unit}"
                yield one_line(f"        # decide: {todo} (rows that break it are ignored)")
        yield from (f"      - {_key_fields(table, key)} # follows from another key on these columns" for key in implied)
    yield from _unique(table, primary, kept)
    yield from _checks(table, kept)
    yield from _indexes(table, kept | {column.name for column in generated}, has_keys=bool(keys))
    if generated:
        yield "    generated:"
        yield from (f"      {flow_yaml(column.name)}: {flow_yaml(dump_generated(column))}" for column in generated)
    yield "    columns:"
    in_keys = set(guess).union(*(key.columns for key in keys))
    for column in table.columns:
        if column.type is None:
            yield left_out(column)
        else:
            nullable = column.nullable and column.name not in guess
            sample = samples.get(column.name)
            yield draft_column(table, column, is_key=column.name in in_keys, nullable=nullable, sample=sample)


def _unique(table: FoundTable, primary: tuple[str, ...], kept: set[str]) -> Iterator[str]:
    """Yield the unique sets, and the names of keys."""
    unique = [group for group in table.unique if kept.issuperset(group)]
    if unique:
        yield f"    unique: {flow_yaml([list(group) for group in unique])}"
    names = {name: one_or_list(group) for group, name in table.key_names if group in {primary, *unique}}
    if names:
        yield f"    key_names: {flow_yaml(names)}"


def dependants(catalogue: Catalogue, root: str) -> set[str]:
    """Return the tables whose foreign keys lead to ``root``, directly or not; without ``root`` itself."""
    parents = {table.name: {key.parent for key in table.foreign_keys} for table in catalogue.tables}
    found = {root}
    while more := {name for name, above in parents.items() if above & found} - found:
        found |= more
    return found - {root}


def _maybe_inside(table: FoundTable, catalogue: Catalogue, unit: str, keys: list[FoundKey]) -> list[FoundKey]:
    """Return the keys that may stay within one unit: both ends have owners, and another key can be the owner key."""
    private = dependants(catalogue, unit) | {unit}
    leading = [key for key in keys if key.parent in private]
    if table.name == unit:
        return [key for key in leading if key.parent != unit]
    return leading if table.name in private and len(leading) > 1 else []


def _path(table: FoundTable, catalogue: Catalogue, unit: str, keys: list[FoundKey]) -> Iterator[str]:
    """Yield the decision about a table that no key connects with the unit."""
    if len(catalogue.tables) > 1 and not any(other.foreign_keys for other in catalogue.tables):
        yield "    # decide: foreign_keys: [{columns: .., references: .., max_children: ..}], or public: true"
    elif unit not in (UNDECIDED, table.name) and table.name not in dependants(catalogue, unit):
        todo = "public: true if its rows are public" + ("" if keys else ", otherwise a foreign key that leads there")
        yield f"    # decide: no key leads from here to {unit}; {todo}"


def _likely_key(table: FoundTable) -> tuple[str, ...]:
    usual = {"id", f"{table.name}_id".casefold(), f"{table.name}id".casefold()}
    found = [column.name for column in table.columns if column.name.casefold() in usual and column.type is not None]
    return tuple(found) if len(found) == 1 else ()


def _foreign_keys(
    table: FoundTable, catalogue: Catalogue, kept: set[str]
) -> tuple[list[FoundKey], list[FoundKey], list[str]]:
    """Return the keys that a spec can declare, those that they imply, and notes about the others."""
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
            notes.append(f"{where}, because {key.parent} may not be read")
        elif not (kept.issuperset(key.columns) and usable[key.parent].issuperset(key.parent_columns)):
            notes.append(f"{where}, because one of its columns is left out")
        else:
            keys.append(key)
    required = {
        other.name: [key for key in other.foreign_keys if not _is_optional(other, key)] for other in catalogue.tables
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


def _foreign_key(table: FoundTable, key: FoundKey) -> Iterator[str]:
    groups = [group for group in (table.primary_key, *table.unique) if group]
    if any(set(group) <= set(key.columns) for group in groups):  # unique, so the bound is known to be 1
        yield f"      - {_key_fields(table, key)}"
        return
    own = " (declared, not enforced, on a key to its own table)" if key.parent == table.name else ""
    several = "owner: true on one key if several lead to the unit"
    yield one_line(f"      # decide: the most rows per row of {key.parent}{own}; {several}")
    if _is_optional(table, key) and "ON DELETE CASCADE" in (key.actions or "") and key.parent != table.name:
        todo = "on_unit_removed: set null, which costs less noise, unless it is the owner key or rows must not outlive"
        yield one_line(f"      # decide: {todo} theirs in {key.parent} (ON DELETE CASCADE)")
    yield f"      - {_key_fields(table, key, undecided=True)}"


def _is_optional(table: FoundTable, key: FoundKey) -> bool:
    nullable = {column.name for column in table.columns if column.nullable} - set(table.primary_key)
    return not nullable.isdisjoint(key.columns)


def _key_fields(table: FoundTable, key: FoundKey, *, undecided: bool = False) -> str:
    there = {"table": key.parent, "columns": list(key.parent_columns)}
    fields: dict[str, Any] = {"columns": one_or_list(key.columns), "references": there}
    fields |= {"max_children": UNDECIDED} if undecided else {}
    fields |= {"optional": True} if _is_optional(table, key) else {}
    texts = {"constraint": key.constraint, "actions": key.actions}
    return flow_yaml(fields | {name: text for name, text in texts.items() if text is not None})


def _checks(table: FoundTable, kept: set[str]) -> Iterator[str]:
    lines = []
    for check in table.checks:
        missing = _columns(check) - kept
        if missing:
            lines.append(f"      # left out: {flow_yaml(check.name)}, because of {', '.join(sorted(missing))}")
            continue
        remark = " # kept in the DDL, not enforced while sampling" if parse_check(check.expression) is None else ""
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


def _names(names: tuple[str, ...]) -> str:
    return flow_yaml(one_or_list(names))
