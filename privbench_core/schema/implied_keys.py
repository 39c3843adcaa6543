"""Two foreign keys on the same columns, of which one follows from the other.

A subtype table (``student.id -> person.id``) and a table that refers to both (``grade.id -> student.id`` and
``grade.id -> person.id``): a row that refers to a student refers to a person.
The second key adds nothing to sample or to protect, so it is kept for the DDL alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar


class Key(Protocol):
    """What a key refers to."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the child."""
        ...

    @property
    def parent(self) -> str:
        """Name of the parent."""
        ...

    @property
    def parent_columns(self) -> tuple[str, ...]:
        """Of the parent, one for each of the child's."""
        ...


K = TypeVar("K", bound=Key)


def without_implied(keys: Sequence[K], keys_of: Callable[[str], Iterable[Key]]) -> tuple[list[K], list[K]]:
    """Return the keys of a table, those apart that hold because others on the same columns do.

    Args:
        keys: Of the table, in its order.
        keys_of: The required keys of a parent table by its name. An optional one is no link: it may be emptied where
            its parent goes, and the table's own key may not.
    """
    kept, implied = list(keys), []
    for key in keys:
        if any(_follows(key, other, keys_of) for other in kept if other is not key):
            kept.remove(key)
            implied.append(key)
    return kept, implied


def _follows(key: Key, other: Key, keys_of: Callable[[str], Iterable[Key]]) -> bool:
    """Return whether the parent along ``other`` has itself a key that leads, over others or not, where ``key`` does."""
    if set(key.columns) != set(other.columns):
        return False
    target = (key.parent, frozenset(zip(key.columns, key.parent_columns, strict=True)))
    seen = set()
    waiting = [(other.parent, frozenset(zip(other.columns, other.parent_columns, strict=True)))]
    while waiting:
        here = waiting.pop()
        if here == target:
            return True
        seen.add(here)
        name, pairs = here
        stands_for = {there: own for own, there in pairs}
        for above in keys_of(name):
            if stands_for.keys() == set(above.columns):
                links = zip(above.columns, above.parent_columns, strict=True)
                further = (above.parent, frozenset((stands_for[column], name) for column, name in links))
                if further not in seen:
                    waiting.append(further)
    return False
