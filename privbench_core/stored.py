"""The stored form of released values: what a step leaves behind, as plain data that an `Artifact` keeps.

A value is an object of its fields under the name of its class, all the way down; a mapping keeps its order. Names of
classes and fields so are a format: whoever changes one raises the version of the steps that store it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, Self

from privbench_core.errors import InternalError, ReleaseError

_CLASSES: dict[str, type[Storable]] = {}


class Storable:
    """A frozen dataclass, or an enumeration, that is stored by its fields.

    These may be plain data, numpy arrays, other storable values, and tuples and mappings of all of them.
    """

    def __init_subclass__(cls) -> None:
        """Let instances be read once the module of their class is imported; InternalError if a name is taken."""
        super().__init_subclass__()
        other = _CLASSES.setdefault(cls.__name__, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InternalError(f"two classes are stored as {cls.__name__!r}; rename one")

    def to_dict(self) -> dict[str, Any]:
        """Return the stored form."""
        parts = {"value": self.value} if isinstance(self, Enum) else {n: stored_form(v) for n, v in fields_of(self)}
        return {"class": type(self).__name__, **parts}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Return the value of this class that `to_dict` described.

        Raises:
            ReleaseError: It is of another class.
        """
        found = restored(stored)
        if not isinstance(found, cls):
            raise ReleaseError(f"a stored value is of class {type(found).__name__!r}; wanted: {cls.__name__!r}")
        return found


def fields_of(value: Any) -> list[tuple[str, Any]]:
    """Return the names and values of the fields of a dataclass."""
    return [(field.name, getattr(value, field.name)) for field in fields(value)]


def restored(stored: Any) -> Any:
    """Return the value whose stored form this is.

    Raises:
        ReleaseError: No imported module has its class, or that of a part.
    """
    if isinstance(stored, list):
        return tuple(map(restored, stored))
    if not isinstance(stored, dict):
        return stored
    if "mapping" in stored:
        return {restored(key): restored(value) for key, value in stored["mapping"]}
    kind = _CLASSES.get(stored.get("class", ""))
    if kind is None:
        known = ", ".join(sorted(_CLASSES))
        raise ReleaseError(f"a stored value is of class {stored.get('class')!r}; known: {known}")
    return kind(**{name: restored(part) for name, part in stored.items() if name != "class"})


def stored_form(value: Any) -> Any:
    """Return the stored form of a value that a field may have, see `Storable`: the inverse of `restored`."""
    if isinstance(value, Storable):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {"mapping": [[stored_form(key), stored_form(part)] for key, part in value.items()]}
    return [stored_form(part) for part in value] if isinstance(value, tuple) else value
