"""Drawing a private table from released models, range by range in any number of processes.

A table of fewer rows than a range has, or whose rows cannot be drawn apart (`can_be_cut`), is one range of all rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.models.lookup import Lookup
from privbench_core.models.profile import Profile
from privbench_core.models.rows import Rows
from privbench_core.sampling.children import children_of, numbers_of_children
from privbench_core.sampling.ranges import (
    Reach,
    can_be_cut,
    cuts_between_units,
    equal_shares,
    range_count,
    reach,
    stays_inside,
    weighted_shares,
)
from privbench_core.sampling.references import Parent
from privbench_core.sampling.table import complete_table
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact, PartFiles
from privbench_core.synthesizers.contract import sampling_rng
from privbench_core.synthesizers.steps.allocated_keys import AllocatedKey, allocate
from privbench_core.synthesizers.steps.drawing import TableModels, as_parent
from privbench_core.synthesizers.steps.sampled import Listed, Sample, SampledTable
from privbench_core.workers import side_by_side

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """A range of rows to be drawn: of the unit's table, or of the children of a range of owners.

    Attributes:
        first: Rows planned before it in the table; before the first piece of the same owners, for children.
        rows: Planned for the unit's table; with an owner for all pieces of the same owners, else.
        owners: Number of the range of its owners; None for those of all ranges.
        place: Which of the ``of`` pieces of these owners it is.
        of: How many there are.
        ownerless: Rows without an owner in it.
    """

    first: int
    rows: int
    owners: int | None = None
    place: int = 0
    of: int = 1
    ownerless: int = 0


class _Ranges(ABC):
    """What makes the ranges of a table, one at a time, and keeps them in files."""

    parts: PartFiles
    allocated: tuple[AllocatedKey, ...]

    def __call__(self, number: int) -> Listed:
        """Make a range and store it; one that an earlier run has finished is left as it is."""
        found = self.parts.finished(number)
        if found is None:
            made = self.made(number).to_artifact()
            found = self.parts.put(number, made), made
        return Listed.of(*found, self._owners_of(number))

    def drawn(self, workers: int | None, **facts: Any) -> Artifact:
        """Make all ranges in processes and list them; where there is one alone, the artifact holds its rows.

        Args:
            workers: Most processes at a time.
            facts: For the summary.
        """
        if self.count == 1:
            return self.made(0).to_artifact(**facts)
        drawing = self.with_allocated_keys(workers)
        try:
            listed = list(side_by_side(drawing, range(self.count), workers))
        finally:
            drawing.forget_allocated_keys()
        return replace(SampledTable.listing(listed, **facts), parts=self.parts)

    def forget_allocated_keys(self) -> None:
        """Delete what `with_allocated_keys` has stored."""
        for allocated in self.allocated:
            allocated.forget()

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of ranges."""

    @abstractmethod
    def made(self, number: int) -> Sample:
        """Return the rows of a range; their ``parents`` are rows of the range of their owners, along the owner key."""

    @abstractmethod
    def with_allocated_keys(self, workers: int | None = None) -> Self:
        """Return the same with references to other tables allocated to ranges, in files beside the finished ones."""

    @abstractmethod
    def _owners_of(self, number: int) -> int:
        """Return the range of owners that they belong to."""


@dataclass(frozen=True)
class RangeDrawing(_Ranges):
    """Draws a table range by range; what a range holds depends on its number alone.

    Attributes:
        models: Released.
        seed: Of the run.
        above: Tables that rows refer to, by name.
        beside: Children of the same owners, by their key.
        parts: Where finished ranges are kept.
        pieces: The ranges.
        total: Rows planned in all of them.
        allocated: References to other tables, as they are allocated to the ranges.
    """

    models: TableModels
    seed: int
    above: Mapping[str, SampledTable]
    beside: Mapping[ForeignKey, SampledTable]
    parts: PartFiles
    pieces: tuple[Piece, ...]
    total: int
    allocated: tuple[AllocatedKey, ...] = ()
    _owners: dict[int | None, tuple[Parent, Numbers]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def plan(
        cls,
        models: TableModels,
        seed: int,
        above: Mapping[str, SampledTable],
        beside: Mapping[ForeignKey, SampledTable],
        parts: PartFiles,
    ) -> Self:
        """Cut the table into ranges, by released numbers and finished rows."""
        pieces = _pieces(models, seed, above) if can_be_cut(models.schema, models.table) else []
        if len(pieces) < 2:  # noqa: PLR2004 - nothing to share
            return cls.in_one_piece(models, seed, above, beside, parts)
        rows = sum(piece.rows for piece in pieces if piece.place == 0) + sum(piece.ownerless for piece in pieces)
        return cls(models, seed, above, beside, parts, tuple(pieces), rows)

    @classmethod
    def in_one_piece(
        cls,
        models: TableModels,
        seed: int,
        above: Mapping[str, SampledTable],
        beside: Mapping[ForeignKey, SampledTable],
        parts: PartFiles,
    ) -> Self:
        """Return the drawing of all rows as one range."""
        rows, ownerless = _rows(models)
        return cls(models, seed, above, beside, parts, (Piece(0, rows, ownerless=ownerless),), rows + ownerless)

    @property
    def count(self) -> int:
        """See `_Ranges.count`."""
        return len(self.pieces)

    def with_allocated_keys(self, workers: int | None = None) -> Self:
        """See `_Ranges.with_allocated_keys`."""
        models = self.models
        keys = [key for key in models.first_keys if reach(models.schema, models.table, key) is Reach.ALLOCATED]
        if not keys:
            return self
        rows = list(side_by_side(_PlannedRows(self), range(self.count), workers))
        folder = self.parts.folder
        return replace(
            self,
            allocated=allocate(models.table, keys, models.lookups, self._referred, self.above, rows, self.seed, folder),
        )

    def _referred(self, key: ForeignKey, number: int | None) -> Parent:
        """Rows that a key refers to, those of a range or all of them, with their numbers of children."""
        models, above = self.models, self.above[key.parent]
        owner = models.table.owner_key
        own = self._numbers(number)[1] if owner is not None and owner in models.counted[key.name] else None
        parent = models.parent(key.parent, above.part(number))
        return models.counting(key, parent, self.beside, above.rows, number, own)

    def _owners_of(self, number: int) -> int:
        return self.pieces[number].owners or 0

    def made(self, number: int) -> Sample:
        """See `_Ranges.made`."""
        piece, models, owner = self.pieces[number], self.models, self.models.table.owner_key
        rng = sampling_rng(self.seed, "sample", models.table.name, str(number))
        parents, lookups = dict[str, Parent](), dict(models.lookups)
        for allocated in self.allocated:
            parents[allocated.key.name], lookups[allocated.key.name] = allocated.range(number)
        rows, owners, units, before, start = Rows(piece.rows), None, None, piece.first, 0
        if owner is not None and models.fanout is not None:
            above, children, (start, stop) = self._children(piece)
            here, numbers = above.slice(start, stop), children[start:stop]
            rows, owners = children_of(models.fanout, here, numbers, piece.ownerless, rng, models.table)
            parents[owner.name], units, before = here, here.units, before + int(children[:start].sum())
        for key in models.first_keys:
            if units is not None and stays_inside(models.schema, models.table, key):
                coded = partial(models.parent, key.parent)
                parents[key.name], lookups[key.name] = _of_units(
                    units, models.lookups[key.name], coded, self.above[key.parent], models.scale
                )
            elif key.name not in parents:
                parents[key.name] = self._referred(key, None)
        if piece.place == piece.of - 1:
            self._owners.clear()
        drawn = models.draw(rows, owners, parents, lookups, rng, (before, self.total))
        if owner is None:
            return replace(drawn, parents={})
        places = drawn.parents[owner.name]
        return replace(drawn, parents={owner.name: np.where(places < 0, -1, places + start)})

    def planned_rows(self, number: int) -> int:
        """Rows that a range has before any are left out."""
        piece = self.pieces[number]
        if self.models.fanout is None:
            return piece.rows
        _, children, (start, stop) = self._children(piece)
        return int(children[start:stop].sum()) + piece.ownerless

    def _children(self, piece: Piece) -> tuple[Parent, Numbers, tuple[int, int]]:
        """A range of owners, how many children each has, and which of them are those of a piece."""
        above, numbers = self._numbers(piece.owners)
        cuts = cuts_between_units(numbers, np.asarray(above.units), piece.of)
        return above, numbers, (cuts[piece.place], cuts[piece.place + 1])

    def _numbers(self, owners: int | None) -> tuple[Parent, Numbers]:
        """The owners of a range, or all of them, and how many children each has."""
        models, owner = self.models, self.models.table.owner_key
        if owner is None or models.fanout is None:
            raise InternalError(f"{models.table.name}: rows of the unit's table have no owners")
        if owners not in self._owners:
            self._owners.clear()  # the pieces of one range of owners follow each other
            above = self.above[owner.parent]
            rows = next(piece.rows for piece in self.pieces if piece.owners == owners)
            rng = sampling_rng(self.seed, "children", models.table.name, str(owners or 0))
            parent = models.parent(owner.parent, above.part(owners))
            parent = models.counting(owner, parent, self.beside, above.rows, owners)
            stratum = (0, 1) if owners is None else (owners, len(above.rows))
            numbers = numbers_of_children(models.fanout, parent, rows, rng, models.table, stratum)
            self._owners[owners] = parent, numbers
        return self._owners[owners]


def _rows(models: TableModels) -> tuple[int, int]:
    """How many rows are planned that have an owner, or need none, and how many without the one that others have."""
    if models.fanout is None:
        return max(1, round(models.profile.total * models.scale)), 0
    return round(models.fanout.owned * models.scale), round(models.fanout.ownerless * models.scale)


def _pieces(models: TableModels, seed: int, above: Mapping[str, SampledTable]) -> list[Piece]:
    """Cut a table into ranges of about as many rows, each with the children of some units of one range of owners."""
    table, fanout, (rows, ownerless) = models.table, models.fanout, _rows(models)
    if fanout is None or table.owner_key is None:
        return [Piece(a, b - a) for a, b in pairwise(equal_shares(rows, range_count(rows)))]
    owners = above[table.owner_key.parent]
    rng, strata = sampling_rng(seed, "ranges", table.name), len(owners.rows)
    planned = [float(fanout.numbers(n, rng, (j, strata)).sum()) for j, n in enumerate(owners.rows)]
    ends = weighted_shares(rows, planned)
    inside = [above[key.parent] for key in models.first_keys if stays_inside(models.schema, table, key)]
    beside = [max((parent.rows_between(*span) for parent in inside), default=0) for span in owners.units]
    counts = [range_count(max(b - a, n)) for (a, b), n in zip(pairwise(ends), beside, strict=True)]
    alone = equal_shares(ownerless, sum(counts))
    pieces: list[Piece] = []
    for j, count in enumerate(counts):
        for place in range(count):
            before, after = alone[len(pieces) : len(pieces) + 2]
            pieces.append(Piece(ends[j] + before, ends[j + 1] - ends[j], j, place, count, after - before))
    return pieces


@dataclass(frozen=True)
class RangeCompletion(_Ranges):
    """Fills the deferred keys of a table range by range: its second pass.

    Attributes:
        schema: The database.
        table: The table.
        keys: Its deferred keys.
        seed: Of the run.
        scale: As the tables were drawn at.
        first: What the first pass has left.
        above: Private tables that these keys refer to, by name.
        profiles: Of these tables and of the table itself, by name.
        lookups: By key name.
        parts: Where finished ranges are kept.
        allocated: References of these keys, as they are allocated to the ranges.
    """

    schema: Schema
    table: Table
    keys: Sequence[ForeignKey]
    seed: int
    scale: float
    first: SampledTable
    above: Mapping[str, SampledTable]
    profiles: Mapping[str, Profile]
    lookups: Mapping[str, Lookup]
    parts: PartFiles
    allocated: tuple[AllocatedKey, ...] = ()

    @property
    def count(self) -> int:
        """See `_Ranges.count`."""
        return len(self.first.rows)

    def with_allocated_keys(self, workers: int | None = None) -> Self:
        """See `_Ranges.with_allocated_keys`."""
        keys = [key for key in self.keys if not stays_inside(self.schema, self.table, key)]
        rows, folder = self.first.rows, self.parts.folder
        return replace(
            self,
            allocated=allocate(self.table, keys, self.lookups, self._referred, self.above, rows, self.seed, folder),
        )

    def _owners_of(self, number: int) -> int:
        return self.first.owners[number]

    def made(self, number: int) -> Sample:
        """See `_Ranges.made`."""
        drawn = self.first.part(number)
        parents, lookups = dict[str, Parent](), dict(self.lookups)
        for allocated in self.allocated:
            parents[allocated.key.name], lookups[allocated.key.name] = allocated.range(number)
        for key in self.keys:
            if stays_inside(self.schema, self.table, key):
                units, coded = np.asarray(drawn.units), partial(self._coded, key.parent)
                parents[key.name], lookups[key.name] = _of_units(
                    units, lookups[key.name], coded, self.above[key.parent], self.scale
                )
            elif key.name not in parents:
                parents[key.name] = self._referred(key, None)
        rng = sampling_rng(self.seed, "references", self.table.name, str(number))
        discretizers = self.profiles[self.table.name].discretizers
        codes = drawn.encoded(self.table, discretizers)
        rows = complete_table(
            self.table, self.keys, drawn.table, codes, discretizers, drawn.weights, parents, lookups, rng, drawn.units
        )
        return replace(drawn, table=rows)

    def _referred(self, key: ForeignKey, number: int | None) -> Parent:
        return self._coded(key.parent, self.above[key.parent].part(number))

    def _coded(self, name: str, sample: Sample) -> Parent:
        return as_parent(self.schema.table(name), sample, self.profiles[name])


def _of_units(
    units: Numbers, lookup: Lookup, coded: Callable[[Sample], Parent], parents: SampledTable, scale: float
) -> tuple[Parent, Lookup]:
    """The parents that belong to some units, and the link to draw references to them by."""
    found = coded(parents.of_units(units))
    return found, lookup.at_scale(scale * found.table.num_rows / max(1, sum(parents.rows)))


@dataclass(frozen=True)
class _PlannedRows:
    drawing: RangeDrawing

    def __call__(self, number: int) -> int:
        return self.drawing.planned_rows(number)
