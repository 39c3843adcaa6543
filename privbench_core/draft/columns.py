"""One line of a drafted spec per column: what the catalogue says, and a mark where the owner has to decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from privbench_core.backends.catalogue import FoundColumn, FoundTable
from privbench_core.backends.folder.catalogue import CSV
from privbench_core.draft.identifying import guess_identifying
from privbench_core.draft.proposals import propose_domain
from privbench_core.draft.samples import SampleColumn
from privbench_core.schema.checks import is_contained
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.types.sql import parse_sql_type
from privbench_core.spec.dump import dump_domain, dump_sequence
from privbench_core.spec.fields import UNDECIDED
from privbench_core.spec.yaml_io import flow_yaml


@dataclass(frozen=True)
class _Chosen:
    """A type, the fields that go with it, and what to say about them."""

    type: ColumnType
    fields: dict[str, Any]
    notes: tuple[str, ...] = ()


def draft_column(
    table: FoundTable, column: FoundColumn, *, is_key: bool, nullable: bool, sample: SampleColumn | None
) -> str:
    """Return the line of a column that is kept.

    Args:
        table: Its table.
        column: What the catalogue says; its type is known.
        is_key: Whether it is part of the primary or a foreign key.
        nullable: Whether it may be NULL; the primary key may not, whatever the source says.
        sample: What public example rows show of it, if there are any.
    """
    chosen = _key(column) if is_key else _attribute(table, column, sample)
    fields: dict[str, Any] = {"type": str(chosen.type)}
    notes = [*chosen.notes, *([column.note] if column.note else [])]
    if "precision" in chosen.type.logical.options:
        fields |= {"precision": column.precision or UNDECIDED}
        fields |= {"scale": UNDECIDED if column.scale is None else column.scale}
        if column.precision is None:
            notes.append("decide: how many digits are kept, and how many of them are decimals")
    fields |= chosen.fields
    flags = {"nullable": nullable, "identity": column.identity and not nullable}
    fields |= {name: True for name, value in flags.items() if value}
    default = column.default if column.default is None or is_contained(column.default) else None
    if default != column.default:
        notes.append("its default is left out, being no single expression")
    stored = column.sql_type if chosen.type is column.type or column.type is ColumnType.CATEGORY else None
    texts = {"sql_type": stored, "default": default, "comment": column.comment}
    fields |= {name: text for name, text in texts.items() if text is not None}
    if column.sequence and not nullable:
        fields["sequence"] = dump_sequence(column.sequence)
    written = flow_yaml(fields if len(fields) > 1 else fields["type"])
    remark = f" # {one_line('; '.join(notes))}" if notes else ""
    return f"      {flow_yaml(column.name)}: {written}{remark}"


def left_out(column: FoundColumn) -> str:
    """Return the line of a column that no type fits, or that may not be read."""
    return one_line(f"      # left out: {flow_yaml(column.name)} ({column.native}) {column.note}")


def one_line(remark: str) -> str:
    """Return a remark without line breaks, which names in a catalogue may hold."""
    return " ".join(remark.splitlines())


def _key(column: FoundColumn) -> _Chosen:
    """Keys are made anew, so they have no domain, and text need not be a category; an enum has to be."""
    kind = column.type or ColumnType.TEXT
    if kind is not ColumnType.CATEGORY or column.values:
        return _Chosen(kind, {})
    return _Chosen(ColumnType.TEXT, {})


def _attribute(table: FoundTable, column: FoundColumn, sample: SampleColumn | None) -> _Chosen:
    kind = column.type or ColumnType.TEXT
    stored = parse_sql_type(column.sql_type) if column.sql_type else None
    length = stored.length if stored else None
    if column.values:  # an enum of the source: public, and taken over by the spec where it has a name
        return _Chosen(kind, {} if column.sql_type else {"domain": {"values": list(column.values)}})
    if column.native == CSV and sample and sample.type:
        kind = sample.type
    guess = guess_identifying(column, table.name, length)
    if guess is not None and kind.logical.textual:
        domain = {} if guess.domain is None else {"domain": dump_domain(guess.domain)}
        todo = "made by this rule" if domain else "of which only the length is kept"
        note = f"decide: looks like {guess.what}, {todo}; else category with {{values: [..]}} or learn (paid for)"
        return _Chosen(ColumnType.TEXT, _bound(length) | domain, (note,))
    if kind is ColumnType.CATEGORY and any(group == (column.name,) for group in table.unique):
        note = "decide: its values are unique, so new ones are made and only the length is kept; or {pattern: ..}"
        return _Chosen(ColumnType.TEXT, _bound(length), (note,))
    if kind.logical.length_unit:
        note = f"decide: max_length, the most that is kept (without it {Column.max_length})"
        return _Chosen(kind, _bound(length), () if length else (note,))
    if kind.logical.codec:
        return _Chosen(kind, {})
    proposal = propose_domain(column.name, kind, table.checks)
    if proposal.domain is not None:
        return _Chosen(kind, {"domain": dump_domain(proposal.domain)}, (f"from {', '.join(proposal.checks)}",))
    if sample and sample.domain:
        note = "decide: from the public example data; widen it to whatever may occur"
        return _Chosen(kind, {"domain": dump_domain(sample.domain)}, (note,))
    known = [f"at least {proposal.low}"] if proposal.low is not None else []
    known += [f"at most {proposal.high}"] if proposal.high is not None else []
    hint = f" ({proposal.checks[0]}: {known[0]})" if known else ""
    return _Chosen(kind, {"domain": "learn"}, (f"decide: {_choice(column, kind)}{hint}",))


def _bound(length: int | None) -> dict[str, Any]:
    """Room for every value that the source has room for; what is shorter than the default follows from the type."""
    return {"max_length": length} if length is not None and length > Column.max_length else {}


def _choice(column: FoundColumn, kind: ColumnType) -> str:
    if column.native == CSV:
        return "a CSV header gives no type; choose one, and {min:, max:} or {values: [..]} or learn (paid for)"
    if kind.ordered:
        return "{min:, max:}, or learn (paid for)"
    return "{values: [..]}, learn (paid for), or type: text without a domain"
