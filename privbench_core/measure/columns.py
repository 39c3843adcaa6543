"""Columns of a table as PrivLava has them: attributes, and latent attributes of what its rows own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.binning import Binning
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.intervals import equal_width_codec
from privbench_core.models.latent import Latents
from privbench_core.models.one_way import OneWay
from privbench_core.models.profile import Profile
from privbench_core.privacy.features import Feature, GroupTypes, Own, OwnType
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """What there is of a table's rows: attributes, and latent attributes of the groups of children of each row.

    Attributes:
        sources: Column -> (source, discretizer).
        one_way: Their released counts.
        rows_per_unit: T: up to how many rows of a unit are counted in full.
        types: Names of the latent attributes among them.
        left_out: Of attributes: what counting up to so many rows of a unit leaves out (`Profile.left_out`).
    """

    sources: dict[str, tuple[Own | OwnType, Discretizer]]
    one_way: OneWay
    rows_per_unit: int
    types: tuple[str, ...] = ()
    left_out: Mapping[str, Array] = field(default_factory=dict)

    @classmethod
    def of(cls, profile: Profile) -> Columns:
        """The attributes of a table."""
        sources: dict[str, tuple[Own | OwnType, Discretizer]] = {
            name: (Own(name), discretizer) for name, discretizer in profile.discretizers.items()
        }
        return cls(sources, profile.one_way, profile.size.rows_per_unit, (), profile.left_out())

    def with_latents(self, key: ForeignKey, latents: Latents, types: GroupTypes) -> Columns:
        """With the latent attributes of the groups along a key to this table."""
        sources = dict(self.sources)
        for position, name in enumerate(latents.names):
            sources[name] = (OwnType(key, types, position), value_coder(latents.shape[position]))
        counts = {**self.one_way.counts, **latents.one_way.counts}
        sigmas = {**self.one_way.sigmas, **latents.one_way.sigmas}
        one_way = replace(self.one_way, counts=counts, sigmas=sigmas)
        return Columns(sources, one_way, self.rows_per_unit, (*self.types, *latents.names), self.left_out)

    @property
    def counted(self) -> OneWay:
        """``one_way`` distributed like the rows that are counted: what joints of these are to be compared with."""
        return self.one_way.moved({name: -shift for name, shift in self.left_out.items()})

    @property
    def ordered(self) -> dict[str, int]:
        """Attributes with ordered codes -> how many of their leading codes are intervals."""
        of = {name: discretizer.ordered for name, (_, discretizer) in self.sources.items() if name not in self.types}
        return {name: number for name, number in of.items() if number}

    @property
    def features(self) -> dict[str, tuple[Feature, Discretizer]]:
        """Features of a view."""
        return dict(self.sources)


def value_coder(size: int) -> Discretizer:
    """A discretizer with a code for each latent value."""
    codec = equal_width_codec(Column("#type", ColumnType.INTEGER), 0, size - 1, size)
    none = codec.size - size  # cells of other numbers, of which there are none
    return Discretizer(codec, Binning((*range(size), *[0] * none), (*[1.0] * size, *[0.0] * none)))


def types_of(latents: Latents, sizes: Discretizer, children: Columns) -> GroupTypes:
    """The parameters of the E-step, with the columns of the children that they are about."""
    columns = tuple((*children.sources[name], scores) for name, scores in latents.scores.items())
    return GroupTypes(latents.shape, sizes, latents.size_scores, columns)
