"""A profile, as released: how a table's attributes are coded, and how often each code occurs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privbench_core.columns.discretizer import Discretizer
from privbench_core.models.one_way import OneWay


@dataclass(frozen=True)
class Profile:
    """Released: how a table's attributes are coded, and how often each code occurs.

    Attributes:
        discretizers: Column -> discretizer.
        one_way: Noisy counts of the codes; for an owned table, of units (rows weigh 1/group size).
        total: Noisy number of rows (weighted likewise).
    """

    discretizers: Mapping[str, Discretizer]
    one_way: OneWay
    total: float

    def to_dict(self) -> dict[str, Any]:
        """A description that `Artifact` can store."""
        return {
            "discretizers": [[name, discretizer.to_dict()] for name, discretizer in self.discretizers.items()],
            "counts": [[name, counts] for name, counts in self.one_way.counts.items()],
            "sigmas": [[name, sigmas] for name, sigmas in self.one_way.sigmas.items()],
            "total": self.total,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Profile:
        """The inverse of `to_dict`."""
        discretizers = {name: Discretizer.from_dict(discretizer) for name, discretizer in stored["discretizers"]}
        one_way = OneWay(dict(stored["counts"]), dict(stored["sigmas"]), stored["total"])
        return cls(discretizers, one_way, stored["total"])
