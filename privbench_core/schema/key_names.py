"""What PostgreSQL calls a constraint or a sequence that nobody has named, and the clauses of a foreign key.

A spec leaves a name out where PostgreSQL would choose the same one.
"""

from __future__ import annotations

import re

_NAME_BYTES = 63
_ACTION = r"(?:NO ACTION|RESTRICT|CASCADE|SET NULL|SET DEFAULT)"
_ACTIONS = re.compile(
    rf"(?:ON UPDATE {_ACTION})?(?: ?ON DELETE {_ACTION})?(?: ?DEFERRABLE(?: INITIALLY (?:DEFERRED|IMMEDIATE))?)?"
)


def usual_name(table: str, columns: tuple[str, ...], kind: str) -> str:
    """Return the name that PostgreSQL gives, if nothing else has it: ``makeObjectName`` of its ``indexcmds.c``.

    Args:
        table: Name of the table.
        columns: Those of the constraint; empty for a primary key, whose name does not tell them.
        kind: ``pkey``, ``key``, ``fkey`` or ``seq``.

    >>> usual_name("line", ("ord", "no"), "fkey"), usual_name("line", (), "pkey")
    ('line_ord_no_fkey', 'line_pkey')
    """
    parts = [table.encode(), "_".join(columns).encode()[:_NAME_BYTES]] if columns else [table.encode()]
    room = _NAME_BYTES - len(f"_{kind}") - (len(parts) - 1)
    lengths = [len(part) for part in parts]
    while sum(lengths) > room:  # the longer of the two gives way, and of equal ones the columns
        lengths[0 if lengths[0] > lengths[-1] else -1] -= 1
    cut = [part[:length].decode(errors="ignore") for part, length in zip(parts, lengths, strict=True)]
    return "_".join([*cut, kind])


def parse_actions(text: str) -> str | None:
    """The clauses of a foreign key after what it references, in PostgreSQL's words; None if they are no such clauses.

    >>> parse_actions("on delete set null  deferrable")
    'ON DELETE SET NULL DEFERRABLE'
    >>> parse_actions("ON DELETE CASCADE; DROP TABLE person") is None
    True
    """
    spelled = " ".join(text.upper().split())
    return spelled if spelled and _ACTIONS.fullmatch(spelled) else None
