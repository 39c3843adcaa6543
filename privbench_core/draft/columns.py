"""Draft the line of each column of a table: its type, its domain, and what its owner should know of it.

The facts are the catalogue's; defaults that an owner may change come from names, checks and public example rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from privbench_core.backends.catalogue import CSV, Catalogue, FoundColumn, FoundTable
from privbench_core.draft.keys import numbered_columns, referring_attributes, undeclared_references
from privbench_core.draft.names import MONEY, domain_by_name, ends_with, guess_identifying, singular, type_by_name
from privbench_core.draft.related import creation_of, follows, is_sound, propose_bases
from privbench_core.draft.samples import SampleColumn
from privbench_core.draft.units import Roles
from privbench_core.schema.checks import is_contained
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.types.registry import default_sql_type, parse_sql_type
from privbench_core.spec import forms
from privbench_core.spec.dump import dump_domain
from privbench_core.spec.yaml_io import flow_yaml

UNTYPED = "text, or is it an integer, float, date or timestamp?"
"""The remark on a column whose type neither a file nor a name says."""
FROM_PARTITIONS = "the range of the table's partitions"
"""The remark on a domain that follows from them."""


def one_line(remark: str) -> str:
    """Return a remark without line breaks, which names in a catalogue may contain."""
    return " ".join(remark.splitlines())


def given(**texts: str | None) -> dict[str, str]:
    """Return the texts that there are."""
    return {name: text for name, text in texts.items() if text is not None}


def draft_columns(
    table: FoundTable,
    usable: FoundTable,
    catalogue: Catalogue,
    roles: Roles,
    samples: Mapping[str, SampleColumn],
    outside: Collection[str],
) -> Iterator[str]:
    """Yield the lines of a table's columns; ``usable`` is the table with those keys alone that its spec declares."""
    public = table.name in outside
    in_keys, numbered = usable.key_columns, numbered_columns(usable)
    references = {name for key in usable.foreign_keys for name in key.columns}
    referring = referring_attributes(usable, catalogue, outside)
    bases = {name: base for name, base in propose_bases(table).items() if in_keys.isdisjoint((name, base.name))}
    owner = _owner(usable, catalogue, roles)
    undeclared = dict(undeclared_references(usable, (other for other in catalogue.readable if other is not table)))
    creation = creation_of(owner) if owner else None
    for column in table.columns:
        if column.type is None:
            yield one_line(f"      # left out: {flow_yaml(column.name)} ({column.native}) {column.note}")
            continue
        sample = samples.get(column.name)
        is_key = column.name in in_keys
        if not public and column.name in referring:
            chosen = _Chosen(column.type, {"domain": "learn"})
        elif public or column.name in references:
            chosen = _without_domain(column, sample)
        elif column.name in numbered:
            chosen = _numbered(column, _without_domain(column, sample).noting(*numbered[column.name]), usable)
        else:
            chosen = _modelled(table, column, sample)
            chosen = _in_key(column, chosen) if is_key else chosen
        if parent := undeclared.get(column.name):
            chosen = _maybe_reference(chosen, parent, outside)
        if chosen.fields.get("domain") == "learn":
            if column.name in bases:
                chosen = _relative(chosen, bases[column.name])
            elif not is_key and owner and creation and follows(column, creation):
                chosen = _relative_to_owner(chosen, column.name, owner, creation)
        yield _line(column, chosen, nullable=column.nullable and column.name not in usable.primary_key)


def _maybe_reference(chosen: _Chosen, parent: str, outside: Collection[str]) -> _Chosen:
    """Return a column that is called after the key of another table: of few units that share a private row, a range."""
    found = chosen.noting(f"named like the key of {parent}: should it be a foreign key?")
    if parent not in outside and chosen.fields.get("domain") == {"values": "learn"}:
        found = replace(found, fields={**found.fields, "domain": "learn"})
    return found


def _owner(table: FoundTable, catalogue: Catalogue, roles: Roles) -> FoundTable | None:
    """Return the table of the owners of a table's rows, None if they may have none."""
    for key in table.foreign_keys:
        role = roles.get((table.name, key.columns, key.parent))
        if role and role.owner and not table.is_optional(key):
            return catalogue.table(key.parent)
    return None


@dataclass(frozen=True)
class _Chosen:
    """A type, its fields, and notes for the owner."""

    type: ColumnType
    fields: dict[str, Any]
    notes: tuple[str, ...] = ()

    def noting(self, *notes: str) -> _Chosen:
        return replace(self, notes=(*self.notes, *notes))


def _in_key(column: FoundColumn, chosen: _Chosen) -> _Chosen:
    """Return a column of a key of several columns with a domain, by which its values are kept."""
    if column.values:
        return replace(chosen, fields={"domain": {"values": list(column.values)}})
    if chosen.type is ColumnType.TEXT:  # next to the rest of the key, its values recur
        return _Chosen(ColumnType.CATEGORY, {"domain": "learn"})
    return chosen


def _line(column: FoundColumn, chosen: _Chosen, *, nullable: bool) -> str:
    """Return the line of a column that is kept; the primary key is never NULL, whatever the source says."""
    fields: dict[str, Any] = {"type": str(chosen.type)}
    notes = [*chosen.notes, *([column.note] if column.note else [])]
    if "precision" in chosen.type.logical.options:
        # Of a column that bounds no digits: what money and measurements need; chosen by hand.
        precision, scale = (column.precision, column.scale) if column.precision else (18, 4)
        fields |= {"precision": precision, "scale": scale or 0}
        if column.precision is None:
            notes.append("the source sets no limit: correct the number of digits (precision) and of decimals (scale)")
    fields |= chosen.fields
    flags = {"nullable": nullable, "identity": column.identity and not nullable}
    fields |= {name: True for name, value in flags.items() if value}
    default = column.default if column.default is None or is_contained(column.default) else None
    if default != column.default:
        notes.append("its default is left out, because it is not a single expression")
    stored = column.sql_type if chosen.type is column.type or column.type is ColumnType.CATEGORY else None
    fields |= given(sql_type=stored, default=default, comment=column.comment)
    if column.sequence and not nullable:
        fields["sequence"] = forms.SEQUENCE.write(column.sequence)
    written = flow_yaml(fields if len(fields) > 1 else fields["type"])
    remark = f" # {one_line('; '.join(notes))}" if notes else ""
    return f"      {flow_yaml(column.name)}: {written}{remark}"


def _without_domain(column: FoundColumn, sample: SampleColumn | None) -> _Chosen:
    """Choose a type without a domain; text is a category only for an enum."""
    kind = column.type or ColumnType.TEXT
    if column.native == CSV and sample and sample.type and sample.type.logical.keyable:
        kind = sample.type
    is_text = kind is ColumnType.CATEGORY and not column.values
    return _Chosen(ColumnType.TEXT if is_text else kind, {})


def _numbered(column: FoundColumn, chosen: _Chosen, table: FoundTable) -> _Chosen:
    """Return a generated key column; texts that are a whole key get a form, of which the owner knows more."""
    if chosen.type is not ColumnType.TEXT or table.primary_key != (column.name,):
        return chosen
    if column.native != CSV:
        return chosen.noting("or domain: {pattern: 'C-[0-9]{5}'}, the form of new keys")
    form = replace(chosen, fields={"domain": {"pattern": "[1-9][0-9]{8}"}})
    return form.noting("the form of new keys; if yours are not numbers, write theirs: 'C-[0-9]{5}'")


def _modelled(table: FoundTable, column: FoundColumn, sample: SampleColumn | None) -> _Chosen:
    """Choose the type and the domain of a column whose values are modelled."""
    kind = column.type or ColumnType.TEXT
    if column.values:  # an enum of the source: public, and declared in the spec if it has a name
        return _Chosen(kind, {} if column.sql_type else {"domain": {"values": list(column.values)}})
    guessed: tuple[str, ...] = ()
    if column.native == CSV and sample and sample.type:
        kind = sample.type
    elif column.native == CSV:
        by_name = type_by_name(column.name, [c.name for c in table.columns])
        kind = by_name or kind
        said = "this type is guessed from the name" if by_name else UNTYPED
        if by_name and by_name.logical.calendar:
            said += "; if dates are not written like 2020-12-31, add their format: '%d/%m/%Y'"
        guessed = (f"CSV files have no types; {said}",)
        if by_name is ColumnType.FLOAT and ends_with(column.name, MONEY):
            return _Chosen(ColumnType.DECIMAL, {"precision": 12, "scale": 2, "domain": "learn"}, guessed)
    elif kind is ColumnType.CATEGORY and type_by_name(column.name) in {ColumnType.DATE, ColumnType.TIMESTAMP}:
        guessed = ("dates stored as text? Then write type: timestamp (or date), domain: learn",)
    found = _opaque(table, column, kind)
    if found is None:
        found = _with_domain(table, column, kind, sample) if kind.logical.needs_domain else _Chosen(kind, {})
    return replace(found, notes=(*guessed, *found.notes))


def _opaque(table: FoundTable, column: FoundColumn, kind: ColumnType) -> _Chosen | None:
    """Return how a column is drafted of which at most the lengths are kept; None if its values are modelled."""
    stored = parse_sql_type(column.sql_type) if column.sql_type else None
    length = stored.length if stored else None
    # Shorter bounds than the default follow from the type.
    bound = {"max_length": length} if length is not None and length > Column.max_length else {}
    guess = guess_identifying(column, table.name, length) if kind.logical.textual else None
    if guess is not None and not isinstance(guess.domain, Learn):
        domain = {} if guess.domain is None else {"domain": dump_domain(guess.domain)}
        made = "new ones are generated" if domain else "becomes random text of the same lengths; or type: category"
        return _Chosen(ColumnType.TEXT, bound | domain, (f"looks like {guess.what}: {made}",))
    if kind is ColumnType.CATEGORY and (column.name,) in table.unique:
        note = "unique, so it becomes random text of the same lengths; or domain: {pattern: ..}"
        return _Chosen(ColumnType.TEXT, bound, (note,))
    if kind.logical.structured:
        note = "common keys and values are learned, each as a column; rare ones are made up"
        return _Chosen(kind, {"domain": "learn"}, (note,))
    if kind.logical.length_unit:
        note = f"max_length: the longest value that is kept (default {Column.max_length})"
        return _Chosen(kind, bound, () if length else (note,))
    return None


def _with_domain(table: FoundTable, column: FoundColumn, kind: ColumnType, sample: SampleColumn | None) -> _Chosen:
    """Return a type with the domain that checks, examples or the name give, else one to learn."""
    if column.clock:
        return _Chosen(kind, {"domain": {"min": "PT0S", "max": "PT24H"}}, ("a time of day, stored as an interval",))
    hints, parted = [], table.partitioned
    if parted and parted.columns[0] == column.name and not column.nullable and (bounds := parted.bounds(kind)):
        return _Chosen(kind, {"domain": dump_domain(bounds)}, (FROM_PARTITIONS,))
    if table.checks:
        from privbench_core.draft.proposals import propose_domain

        proposal = propose_domain(column.name, kind, table.checks)
        if proposal.domain is not None:
            return _Chosen(kind, {"domain": dump_domain(proposal.domain)}, (f"from {', '.join(proposal.checks)}",))
        known = {"at least": proposal.low, "at most": proposal.high}
        hints = [f"{proposal.checks[0]}: {side} {end}" for side, end in known.items() if end is not None][:1]
    if sample and sample.domain:
        note = "from the public example data; widen it to all values that may occur"
        return _Chosen(kind, {"domain": dump_domain(sample.domain)}, (note,))
    if not hints and (usual := domain_by_name(column.name, kind, table)):
        return _Chosen(kind, {"domain": dump_domain(usual)})
    if kind is ColumnType.FLOAT and ends_with(column.name, rf"{MONEY}|amount|payments?"):
        stored = default_sql_type(kind.logical) if column.sql_type is None else column.sql_type
        hints.append(f"money? Then type: decimal, precision: 12, scale: 2, sql_type: {stored} keeps whole cents")
    if (guess := guess_identifying(column, table.name, None)) and isinstance(guess.domain, Learn):
        hints.append(f"looks like {guess.what}: if values rarely repeat, type: text costs less")
    return _Chosen(kind, {"domain": "learn"}, tuple(hints))


def _relative(chosen: _Chosen, base: FoundColumn) -> _Chosen:
    """Return a column with its difference from its base as what is learned, or with a remark how to have that."""
    if is_sound(base):
        return _kept_near(chosen, base.name)
    lost = f"; it is NULL where {base.name} is" if base.nullable else ""
    return chosen.noting(f"or {_relative_fields(base.name)}: preserves the gap to {base.name}{lost}")


def _relative_to_owner(chosen: _Chosen, name: str, owner: FoundTable, creation: FoundColumn) -> _Chosen:
    """Return a column with its difference from when its owner began, if it copies that: ``order_date`` in lines."""
    base = f"{owner.name}.{creation.name}"
    if name == creation.name and name.casefold().startswith(singular(owner.name)):
        return _kept_near(chosen, base)
    return chosen.noting(f"or {_relative_fields(base)}: preserves the gap to {base}")


def _kept_near(chosen: _Chosen, base: str) -> _Chosen:
    """Return a column with its difference from ``base`` as what is learned."""
    return replace(chosen, fields={"relative_to": base, **chosen.fields}).noting(f"the gap to {base} is preserved")


def _relative_fields(base: str) -> str:
    """Return what makes a column relative to another one, as it is written in a spec."""
    return flow_yaml({"relative_to": base, "domain": "learn"}).strip("{}")
