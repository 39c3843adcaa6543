"""A profile, as released: how a table's attributes are coded, and how often each code occurs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.models.one_way import OneWay
from privbench_core.models.row_count import RowCount

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Profile:
    """Released: how a table's attributes are coded, and how often each code occurs.

    Attributes:
        discretizers: Column -> discretizer.
        one_way: Noisy counts of the codes: of as many rows as there are if units with more than ``size.rows_per_unit``
            have so many, but distributed like all rows.
        size: Of the table.
        by_size: Column -> joint of the class of the number of rows of a row's unit (`RowCount.classes`) and its code.
    """

    discretizers: Mapping[str, Discretizer]
    one_way: OneWay
    size: RowCount
    by_size: Mapping[str, Array] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Noisy number of rows, counted as in ``one_way``."""
        return self.one_way.total

    def left_out(self) -> dict[str, Array]:
        """What ``by_size`` adds to counts of up to ``size.rows_per_unit`` rows of a unit: see `RowCount.left_out`."""
        shapes = {name: joint / joint.sum(axis=1, keepdims=True) for name, joint in self.by_size.items()}
        return {name: self.size.left_out(shape, self.size.rows_per_unit) for name, shape in shapes.items()}

    def to_dict(self) -> dict[str, Any]:
        """A description that `Artifact` can store."""
        return {
            "discretizers": [[name, discretizer.to_dict()] for name, discretizer in self.discretizers.items()],
            "counts": [[name, counts] for name, counts in self.one_way.counts.items()],
            "sigmas": [[name, sigmas] for name, sigmas in self.one_way.sigmas.items()],
            "total": self.total,
            "size": self.size.to_dict(),
            "by size": [[name, joint] for name, joint in self.by_size.items()],
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Profile:
        """The inverse of `to_dict`."""
        discretizers = {name: Discretizer.from_dict(discretizer) for name, discretizer in stored["discretizers"]}
        one_way = OneWay(dict(stored["counts"]), dict(stored["sigmas"]), stored["total"])
        return cls(discretizers, one_way, RowCount.from_dict(stored["size"]), dict(stored["by size"]))
