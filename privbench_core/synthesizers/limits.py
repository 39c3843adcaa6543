"""What a schema may ask for that nothing can measure, or sampling cannot give: said before anything is spent."""

from __future__ import annotations

from collections.abc import Iterator

from privbench_core.guards import MAX_MOVED
from privbench_core.privacy.reach import bound_in_words
from privbench_core.privacy.relations import keys_into_other_units
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table


def unmeasurable(schema: Schema) -> Iterator[str]:
    """Why noise would hide any rows of a table, by the declared bounds alone, one line per table."""
    known: set[ForeignKey] = set()
    for table in schema.sampling_order:
        keys = {} if table.public else keys_into_other_units(schema, table.name)
        if sum(keys.values()) <= MAX_MOVED or known.issuperset(keys):
            continue
        known |= keys.keys()
        ways = "; ".join(f"{key.name} ({bound_in_words(schema, key)})" for key in keys)
        yield (
            f"{table.name}: a row of {schema.unit} that is removed may take up to {sum(keys.values()):,} rows of other"
            f" units with it, and noise for so many hides any table: {ways}. Declare max_children_per_unit or a smaller"
            " max_children there, same_unit: true if such a key stays inside of one unit, or on_unit_removed: set null"
            " if rows stay when what they refer to is removed"
        )


def unsampleable(schema: Schema, table: Table) -> Iterator[str]:
    """What of a private table's keys and dependencies cannot be kept, one line each: where, what, what to do."""
    required = {name for key in table.foreign_keys if not key.optional for name in key.columns}
    for key in table.foreign_keys:
        if key.optional:
            yield from _never_empty(table, key, required)
    deferred = {name for key in table.foreign_keys if key.name in schema.deferred_keys for name in key.columns}
    for rule in table.dependencies:
        where = f"{table.name}.({', '.join(rule.determinant)})"
        for name in sorted(table.key_columns.intersection(rule.dependent)):
            yield f"{where}: determines the key column {name}, and keys are generated; leave this dependency out"
        for name in sorted((deferred - required).intersection(rule.determinant)):
            yield f"{where}: {name} is filled in last, so nothing can depend on it; leave this dependency out"


def _never_empty(table: Table, key: ForeignKey, required: set[str]) -> Iterator[str]:
    """Why a synthetic row could not leave an optional key empty."""
    emptied = table.emptied_columns(key)
    for name in key.columns:
        if name in emptied or name in required:
            continue
        where = f"{table.name}.{name}"
        others = [other.name for other in table.foreign_keys if other != key and name in other.columns]
        if name in table.primary_key:
            yield (
                f"{where}: in the primary key and in the optional key {key.name}, which a synthetic row leaves empty"
                " as a whole; make the key required, or leave it out of the spec"
            )
        elif others:
            yield (
                f"{where}: stands in {key.name} and in {', '.join(others)}, which may all be NULL; keep it in one"
                " foreign key, or make one of them required"
            )
        else:
            yield (
                f"{where}: not nullable, but in the optional key {key.name}, which a synthetic row leaves empty as a"
                " whole; declare nullable: true, or make the key required"
            )
    if not emptied and required.issuperset(key.columns):
        yield (
            f"{key.name}: optional, but all of its columns are filled by required keys; make it required, or leave it"
            " out of the spec"
        )
