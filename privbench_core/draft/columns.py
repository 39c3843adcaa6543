"""Draft one line of a spec per column: the facts from the catalogue, and defaults that an owner may change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from privbench_core.backends.catalogue import CSV, FoundColumn, FoundTable
from privbench_core.draft.names import domain_by_name, guess_identifying, has_cents, is_money, type_by_name
from privbench_core.draft.related import is_sound
from privbench_core.draft.samples import SampleColumn
from privbench_core.schema.checks import is_contained
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.types.registry import default_sql_type, parse_sql_type
from privbench_core.spec import forms
from privbench_core.spec.dump import dump_domain
from privbench_core.spec.yaml_io import flow_yaml

# Of a numeric column that bounds no digits: what money and measurements need; chosen by hand.
_DIGITS, _DECIMALS = 18, 4


@dataclass(frozen=True)
class _Chosen:
    """A type, its fields, and notes for the owner."""

    type: ColumnType
    fields: dict[str, Any]
    notes: tuple[str, ...] = ()


def draft_column(
    table: FoundTable,
    column: FoundColumn,
    *,
    is_made: bool,
    nullable: bool,
    sample: SampleColumn | None,
    base: FoundColumn | None = None,
    of_owner: str = "",
) -> str:
    """Return the line of a column that is kept.

    Args:
        table: Its table.
        column: Its entry in the catalogue; its type is known.
        is_made: Whether its values are modelled; those of keys are numbered, those of public tables copied.
        nullable: Whether it may be NULL; false for the primary key, whatever the source says.
        sample: Its type and domain in public example rows, if there are any.
        base: The column of its row that it is probably relative to.
        of_owner: The owner's column that it may be relative to as well, as ``relative_to`` names it; empty for none.
    """
    chosen = _attribute(table, column, sample) if is_made else _plain(column, sample)
    if base is not None and chosen.fields.get("domain") == "learn":
        chosen = _relative(chosen, base)
    elif of_owner and chosen.fields.get("domain") == "learn":
        note = f"or {_relative_fields(of_owner)}: keeps its distance from its owner's"
        chosen = replace(chosen, notes=(*chosen.notes, note))
    fields: dict[str, Any] = {"type": str(chosen.type)}
    notes = [*chosen.notes, *([column.note] if column.note else [])]
    if "precision" in chosen.type.logical.options:
        precision, scale = (column.precision, column.scale) if column.precision else (_DIGITS, _DECIMALS)
        fields |= {"precision": precision, "scale": scale or 0}
        if column.precision is None:
            notes.append("the source bounds no digits: change how many are kept, and how many of them are decimals")
    fields |= chosen.fields
    flags = {"nullable": nullable, "identity": column.identity and not nullable}
    fields |= {name: True for name, value in flags.items() if value}
    default = column.default if column.default is None or is_contained(column.default) else None
    if default != column.default:
        notes.append("its default is left out, as it is not one expression")
    stored = column.sql_type if chosen.type is column.type or column.type is ColumnType.CATEGORY else None
    texts = {"sql_type": stored, "default": default, "comment": column.comment}
    fields |= {name: text for name, text in texts.items() if text is not None}
    if column.sequence and not nullable:
        fields["sequence"] = forms.SEQUENCE.write(column.sequence)
    written = flow_yaml(fields if len(fields) > 1 else fields["type"])
    remark = f" # {one_line('; '.join(notes))}" if notes else ""
    return f"      {flow_yaml(column.name)}: {written}{remark}"


def left_out(column: FoundColumn) -> str:
    """Return the line of a column that no type fits, or that may not be read."""
    return one_line(f"      # left out: {flow_yaml(column.name)} ({column.native}) {column.note}")


def one_line(remark: str) -> str:
    """Return a remark without line breaks, which names in a catalogue may contain."""
    return " ".join(remark.splitlines())


def _plain(column: FoundColumn, sample: SampleColumn | None) -> _Chosen:
    """Choose a type without a domain; text is a category only for an enum."""
    kind = column.type or ColumnType.TEXT
    if column.native == CSV and sample and sample.type and sample.type.logical.keyable:
        kind = sample.type
    is_text = kind is ColumnType.CATEGORY and not column.values
    return _Chosen(ColumnType.TEXT if is_text else kind, {})


def _attribute(table: FoundTable, column: FoundColumn, sample: SampleColumn | None) -> _Chosen:
    kind = column.type or ColumnType.TEXT
    if column.values:  # an enum of the source: public, and declared in the spec if it has a name
        return _Chosen(kind, {} if column.sql_type else {"domain": {"values": list(column.values)}})
    guessed: tuple[str, ...] = ()
    if column.native == CSV:
        if sample and sample.type:
            kind = sample.type
        else:
            by_name = type_by_name(column.name, [c.name for c in table.columns])
            kind = by_name or kind
            said = "this one is guessed from the name" if by_name else "or integer, float, date, timestamp?"
            guessed = (f"a CSV file gives no type; {said}",)
            if by_name is ColumnType.FLOAT and has_cents(column.name):
                return _Chosen(ColumnType.DECIMAL, {"precision": 12, "scale": 2, "domain": "learn"}, guessed)
    elif kind is ColumnType.CATEGORY and type_by_name(column.name) in {ColumnType.DATE, ColumnType.TIMESTAMP}:
        guessed = ("dates stored as text? type: timestamp, or date, domain: learn reads them as such",)
    opaque = _opaque(table, column, kind)
    if opaque is not None or not kind.logical.needs_domain:
        found = opaque or _Chosen(kind, {})
    else:
        found = _domain(table, column, kind, sample)
    return replace(found, notes=(*guessed, *found.notes))


def _relative(chosen: _Chosen, base: FoundColumn) -> _Chosen:
    """Return a column with its difference from its base as what is learned, or with a remark how to have that."""
    if is_sound(base):
        note = f"its distance from {base.name} is kept"
        return replace(chosen, fields={"relative_to": base.name, **chosen.fields}, notes=(*chosen.notes, note))
    lost = f"; it is NULL where {base.name} is" if base.nullable else ""
    return replace(
        chosen, notes=(*chosen.notes, f"or {_relative_fields(base.name)}: keeps its distance from {base.name}{lost}")
    )


def _relative_fields(base: str) -> str:
    """Return what makes a column relative to another one, as it is written in a spec."""
    return flow_yaml({"relative_to": base, "domain": "learn"}).strip("{}")


def _opaque(table: FoundTable, column: FoundColumn, kind: ColumnType) -> _Chosen | None:
    """Return how a column is drafted of which at most the lengths are kept; None if its values are modelled."""
    stored = parse_sql_type(column.sql_type) if column.sql_type else None
    length = stored.length if stored else None
    guess = guess_identifying(column, table.name, length) if kind.logical.textual else None
    if guess is not None:
        domain = {} if guess.domain is None else {"domain": dump_domain(guess.domain)}
        made = "new ones are generated" if domain else "random text of the same lengths; or type: category"
        return _Chosen(ColumnType.TEXT, _bound(length) | domain, (f"looks like {guess.what}: {made}",))
    if kind is ColumnType.CATEGORY and any(group == (column.name,) for group in table.unique):
        note = "its values are unique: random text of the same lengths; or {pattern: ..}"
        return _Chosen(ColumnType.TEXT, _bound(length), (note,))
    if kind.logical.length_unit:
        note = f"max_length: the most that is kept (without it {Column.max_length})"
        return _Chosen(kind, _bound(length), () if length else (note,))
    return None


def _domain(table: FoundTable, column: FoundColumn, kind: ColumnType, sample: SampleColumn | None) -> _Chosen:
    """Return a type with the domain that checks, examples or the name give, else one to learn."""
    if column.clock:
        return _Chosen(kind, {"domain": {"min": "PT0S", "max": "PT24H"}}, ("a time of day, stored as an interval",))
    hint = []
    if table.checks:
        from privbench_core.draft.proposals import propose_domain

        proposal = propose_domain(column.name, kind, table.checks)
        if proposal.domain is not None:
            return _Chosen(kind, {"domain": dump_domain(proposal.domain)}, (f"from {', '.join(proposal.checks)}",))
        known = {"at least": proposal.low, "at most": proposal.high}
        hint = [f"{proposal.checks[0]}: {side} {end}" for side, end in known.items() if end is not None][:1]
    if sample and sample.domain:
        note = "from the public example data; widen it to all values that may occur"
        return _Chosen(kind, {"domain": dump_domain(sample.domain)}, (note,))
    usual = None if hint else domain_by_name(column.name, kind)
    if usual is not None and not (isinstance(usual, Learn) and (column.name,) in table.unique):
        return _Chosen(kind, {"domain": dump_domain(usual)})
    if kind is ColumnType.FLOAT and is_money(column.name):
        stored = default_sql_type(kind.logical) if column.sql_type is None else column.sql_type
        hint.append(f"money? type: decimal, precision: 12, scale: 2, sql_type: {stored} has cents, not any digits")
    return _Chosen(kind, {"domain": "learn"}, tuple(hint))


def _bound(length: int | None) -> dict[str, Any]:
    """Return ``max_length`` if the source holds longer values than the default; shorter bounds follow from the type."""
    return {"max_length": length} if length is not None and length > Column.max_length else {}
