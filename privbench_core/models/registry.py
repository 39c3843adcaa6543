"""Registry of model classes: each module of a model registers how to read it, so a new class needs no edit here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from privbench_core.errors import InternalError
from privbench_core.models.rows import Rows


class Model(Protocol):
    """A released model of a table's attributes; its stored form is a mapping with a registered ``kind``."""

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """Add all columns of the model to ``rows``, given the context columns there."""
        ...


Reader = Callable[[Mapping[str, Any]], Model]
_READERS: dict[str, Reader] = {}


def register_model(read: Reader, *kinds: str) -> None:
    """Register ``read`` as the inverse of storing a model of these kinds; call it in the module of the model.

    Raises:
        InternalError: Another function reads one of the kinds.
    """
    for kind in kinds:
        if _READERS.setdefault(kind, read) != read:
            raise InternalError(f"two classes of models are stored as {kind!r}; rename one kind")


def model_from_dict(stored: Mapping[str, Any]) -> Model:
    """Return the model that its step has stored.

    Raises:
        InternalError: No imported module has registered its kind.
    """
    kind = stored["kind"]
    if kind not in _READERS:
        known = ", ".join(sorted(_READERS))
        raise InternalError(f"no class of models is registered for {kind!r}, only {known}; import its module first")
    return _READERS[kind](stored)
