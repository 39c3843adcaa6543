"""Drawing a private table from released models range by range, in any number of processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.models.lookup import Lookup
from privbench_core.models.profile import Profile
from privbench_core.models.rows import Rows
from privbench_core.sampling.children import children_of, numbers_of_children
from privbench_core.sampling.deferred_keys import complete_table
from privbench_core.sampling.ranges import (
    can_be_allocated,
    can_be_cut,
    cuts_between_units,
    equal_shares,
    range_count,
    stays_inside,
    weighted_shares,
)
from privbench_core.sampling.references import Parent
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import PartFiles
from privbench_core.synthesizers.contract import sampling_rng
from privbench_core.synthesizers.steps.allocated_keys import Allocated, allocate
from privbench_core.synthesizers.steps.drawing import TableModels, as_parent
from privbench_core.synthesizers.steps.sampled import Listed, Sample, SampledTable
from privbench_core.workers import side_by_side

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """A range of rows to be drawn: of the unit's table, or of the children of a range of owners.

    Attributes:
        number: Of the range.
        first: Rows planned before it in the table; before the first piece of the same owners, for children.
        rows: Planned for the unit's table; with an owner for all pieces of the same owners, else.
        owners: Number of the range of its owners.
        place: Which of the ``of`` pieces of these owners it is.
        of: How many there are.
        ownerless: Rows without an owner in it.
    """

    number: int
    first: int
    rows: int
    owners: int = 0
    place: int = 0
    of: int = 1
    ownerless: int = 0


class _Ranges(ABC):
    """What makes the ranges of a table, one at a time, and keeps them in files."""

    parts: PartFiles
    allocated: tuple[Allocated, ...]

    def __call__(self, number: int) -> Listed:
        """Make a range and store it; one that an earlier run has finished is left as it is."""
        found = self.parts.finished(number)
        if found is None:
            made = self._made(number).to_artifact()
            found = self.parts.put(number, made), made
        return Listed.of(*found, self._owners_of(number))

    def forget_allocated_keys(self) -> None:
        """Delete what `with_allocated_keys` has stored."""
        for allocated in self.allocated:
            allocated.forget()

    @abstractmethod
    def _made(self, number: int) -> Sample:
        """Return the rows of a range."""

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
    allocated: tuple[Allocated, ...] = ()
    _owners: dict[int, tuple[Parent, Numbers]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def plan(
        cls,
        models: TableModels,
        seed: int,
        above: Mapping[str, SampledTable],
        beside: Mapping[ForeignKey, SampledTable],
        parts: PartFiles,
    ) -> RangeDrawing | None:
        """Cut the table into ranges, by released numbers and finished rows; None if it is to be drawn in one piece."""
        table, fanout, scale = models.table, models.fanout, models.scale
        if not can_be_cut(models.schema, table):
            return None
        pieces: list[Piece] = []
        if fanout is None or table.owner_key is None:
            total = max(1, round(models.profile.total * scale))
            ends = equal_shares(total, range_count(total))
            pieces = [Piece(number, a, b - a) for number, (a, b) in enumerate(pairwise(ends))]
        else:
            owners = above[table.owner_key.parent].rows
            rng, strata = sampling_rng(seed, "ranges", table.name), len(owners)
            planned = [float(fanout.numbers(n, rng, (j, strata)).sum()) for j, n in enumerate(owners)]
            ends = weighted_shares(round(fanout.owned * scale), planned)
            inside = [above[key.parent] for key in models.first_keys if stays_inside(models.schema, table, key)]
            beside_units = [
                max((parent.rows_between(*span) for parent in inside), default=0)
                for span in above[table.owner_key.parent].units
            ]
            counts = [range_count(max(b - a, n)) for (a, b), n in zip(pairwise(ends), beside_units, strict=True)]
            alone = equal_shares(round(fanout.ownerless * scale), sum(counts))
            for j, count in enumerate(counts):
                for place in range(count):
                    number = len(pieces)
                    ownerless = alone[number + 1] - alone[number]
                    first, rows = ends[j] + alone[number], ends[j + 1] - ends[j]
                    pieces.append(Piece(number, first, rows, j, place, count, ownerless))
            total = ends[-1] + alone[-1]
        return cls(models, seed, above, beside, parts, tuple(pieces), total) if len(pieces) > 1 else None

    def with_allocated_keys(self, workers: int | None = None) -> RangeDrawing:
        """The same with the references to other tables allocated, in files beside the finished ranges.

        Those are deleted by `forget_allocated_keys`.
        """
        models = self.models
        keys = [key for key in models.first_keys if can_be_allocated(models.schema, models.table, key)]
        if not keys:
            return self
        rows = list(side_by_side(_PlannedRows(self), range(len(self.pieces)), workers))
        parents = {key.parent: _known(models.schema, key.parent, self.above[key.parent]) for key in keys}
        allocated = allocate(
            models.table, keys, models.lookups, self._referred, parents, rows, self.seed, self.parts.folder
        )
        return replace(self, allocated=allocated)

    def _referred(self, key: ForeignKey, number: int) -> Parent:
        """A range of the rows that a key refers to, with their numbers of children."""
        models, above = self.models, self.above[key.parent]
        owner = models.table.owner_key
        own = self._numbers(number)[1] if owner is not None and owner in models.counted[key.name] else None
        parent = models.parent(key.parent, above.part(number))
        return models.counting(key, parent, self.beside, above.rows, number, own)

    def _owners_of(self, number: int) -> int:
        return self.pieces[number].owners

    def _made(self, number: int) -> Sample:
        piece, models, owner = self.pieces[number], self.models, self.models.table.owner_key
        rng = sampling_rng(self.seed, "sample", models.table.name, str(piece.number))
        tables, parents, lookups = dict[str, Parent](), dict[str, Parent](), dict(models.lookups)
        for allocated in self.allocated:
            parents[allocated.key.name], lookups[allocated.key.name] = allocated.range(piece.number)
        for key in models.first_keys:
            if models.schema.table(key.parent).public and key.name not in parents:
                if key.parent not in tables:
                    tables[key.parent] = models.parent(key.parent, self.above[key.parent].whole())
                parents[key.name] = tables[key.parent]
        if owner is None or models.fanout is None:
            models = replace(models, lookups=lookups)
            return models.draw(Rows(piece.rows), None, parents, rng, (piece.first, self.total))
        above, children, (start, stop) = self._children(piece)
        parents[owner.name] = here = above.slice(start, stop)
        for key in models.first_keys:
            if stays_inside(models.schema, models.table, key):
                parents[key.name], lookups[key.name] = _of_units(
                    np.asarray(here.units),
                    models.lookups[key.name],
                    partial(models.parent, key.parent),
                    self.above[key.parent],
                    models.scale,
                )
        rows, owners = children_of(models.fanout, here, children[start:stop], piece.ownerless, models.table)
        models = replace(models, lookups=lookups)
        drawn = models.draw(rows, owners, parents, rng, (piece.first + int(children[:start].sum()), self.total))
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

    def _numbers(self, owners: int) -> tuple[Parent, Numbers]:
        """A range of owners, and how many children each has."""
        models, owner = self.models, self.models.table.owner_key
        if owner is None or models.fanout is None:
            raise InternalError(f"{models.table.name}: rows of the unit's table have no owners")
        if owners not in self._owners:
            self._owners.clear()  # the pieces of one range of owners follow each other
            above = self.above[owner.parent]
            rows = next(piece.rows for piece in self.pieces if piece.owners == owners)
            rng = sampling_rng(self.seed, "children", models.table.name, str(owners))
            parent = models.parent(owner.parent, above.part(owners))
            parent = models.counting(owner, parent, self.beside, above.rows, owners)
            stratum = owners, len(above.rows)
            numbers = numbers_of_children(models.fanout, parent, rows, rng, models.table, stratum)
            self._owners[owners] = parent, numbers
        return self._owners[owners]


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
    keys: tuple[ForeignKey, ...]
    seed: int
    scale: float
    first: SampledTable
    above: Mapping[str, SampledTable]
    profiles: Mapping[str, Profile]
    lookups: Mapping[str, Lookup]
    parts: PartFiles
    allocated: tuple[Allocated, ...] = ()

    def with_allocated_keys(self) -> RangeCompletion:
        """As `RangeDrawing.with_allocated_keys`."""
        keys = [key for key in self.keys if not stays_inside(self.schema, self.table, key)]
        rows, folder = self.first.rows, self.parts.folder
        return replace(
            self,
            allocated=allocate(self.table, keys, self.lookups, self._referred, self.above, rows, self.seed, folder),
        )

    def _owners_of(self, number: int) -> int:
        return self.first.owners[number]

    def _made(self, number: int) -> Sample:
        drawn = self.first.part(number)
        parents, lookups = dict[str, Parent](), dict(self.lookups)
        for allocated in self.allocated:
            parents[allocated.key.name], lookups[allocated.key.name] = allocated.range(number)
        for key in self.keys:
            if key.name not in parents:
                above, coded = self.above[key.parent], partial(self._coded, key.parent)
                units = np.asarray(drawn.units)
                parents[key.name], lookups[key.name] = _of_units(units, lookups[key.name], coded, above, self.scale)
        rng = sampling_rng(self.seed, "references", self.table.name, str(number))
        discretizers = self.profiles[self.table.name].discretizers
        codes = drawn.encoded(self.table, discretizers)
        rows, _ = complete_table(
            self.table, self.keys, drawn.table, codes, discretizers, drawn.weights, parents, lookups, rng, drawn.units
        )
        return replace(drawn, table=rows)

    def _referred(self, key: ForeignKey, number: int) -> Parent:
        return self._coded(key.parent, self.above[key.parent].part(number))

    def _coded(self, name: str, sample: Sample) -> Parent:
        return as_parent(self.schema.table(name), sample, self.profiles[name])


def _of_units(
    units: Numbers, lookup: Lookup, coded: Callable[[Sample], Parent], parents: SampledTable, scale: float
) -> tuple[Parent, Lookup]:
    """The parents that belong to some units, and the link to draw references to them by."""
    found = coded(parents.of_units(units))
    return found, lookup.at_scale(scale * found.table.num_rows / max(1, sum(parents.rows)))


def _known(schema: Schema, name: str, sampled: SampledTable) -> SampledTable | pa.Table:
    """A parent as `allocate` wants it."""
    return sampled.whole_rows() if schema.table(name).public else sampled


@dataclass(frozen=True)
class _PlannedRows:
    drawing: RangeDrawing

    def __call__(self, number: int) -> int:
        return self.drawing.planned_rows(number)
