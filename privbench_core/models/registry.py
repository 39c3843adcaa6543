"""What attributes are drawn from: any released model that completes rows whose context is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from privbench_core.models.group_model import KIND, GroupModel
from privbench_core.models.rows import Rows
from privbench_core.models.spn import node_from_dict


class Model(Protocol):
    """A released model of a table's attributes."""

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """Add all columns of the model to ``rows``."""
        ...


def model_from_dict(stored: Mapping[str, Any]) -> Model:
    """A model as its step has stored it."""
    return GroupModel.from_dict(stored) if stored["kind"] == KIND else node_from_dict(stored)
