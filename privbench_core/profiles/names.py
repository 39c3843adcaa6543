"""Names of columns of views that hold what a row knows of its owner, or of its children."""

from __future__ import annotations

OWN_FANOUT = "#children"
OWNER_FANOUT = "#siblings"
PLACE = "#place"
PARENT = "parent."


def children_column(key: str) -> str:
    """Return the name, among a parent's columns, of the number of its children along another owner key."""
    return f"{OWN_FANOUT} along {key}"


def parent_column(name: str) -> str:
    """Return the name of a parent's column in the context of its children."""
    return f"{PARENT}{name}"
