"""Sample steps: a synthetic table from released models, range by range in any number of processes; or a public one.

A table of fewer rows than a range has, or whose rows cannot be drawn apart (`can_be_cut`), is one range of all rows.
Deferred keys (self-references, keys that open a cycle of tables) are NULL after a table's first pass, which its
children and parents build on, and filled in a second pass, when the tables they refer to are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np

from privbench_core import guards
from privbench_core.arrays import Numbers
from privbench_core.errors import InternalError
from privbench_core.marginals.sampler import Rows
from privbench_core.privacy.budget import Price
from privbench_core.sampling.children import children_of, numbers_of_children
from privbench_core.sampling.constraints import ignored_checks
from privbench_core.sampling.keys import added_by
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
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import constraints_identity, key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact, PartFiles
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind, sampling_rng
from privbench_core.synthesizers.steps.allocated_keys import AllocatedKey
from privbench_core.synthesizers.steps.drawing import DRAWING, TableModels
from privbench_core.synthesizers.steps.link import counted_beside, fanout_key
from privbench_core.synthesizers.steps.sampled import Listed, Sample, SampledTable, span_of
from privbench_core.workers import side_by_side

_IN_RANGES = {"in ranges": "4"}
"""Changed by hand when tables in ranges get other rows or another form, and those in one piece do not: samples are made
again."""


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

    @classmethod
    def whole(cls, models: TableModels) -> Self:
        """Return all rows of a table as one range."""
        rows, ownerless = models.planned_rows
        return cls(0, rows, ownerless=ownerless)


def pieces_of(models: TableModels, seed: int, samples: Mapping[str, SampledTable]) -> tuple[Piece, ...]:
    """Cut a table into ranges of about as many rows, each with the children of some units of one range of owners."""
    table, fanout, (rows, ownerless) = models.table, models.fanout, models.planned_rows
    pieces: list[Piece] = []
    if not can_be_cut(models.schema, table):
        pass
    elif fanout is None or table.owner_key is None:
        pieces = [Piece(a, b - a) for a, b in pairwise(equal_shares(rows, range_count(rows)))]
    else:
        owners = samples[table.owner_key.parent]
        rng, strata = sampling_rng(seed, "ranges", table.name), len(owners.rows)
        ends = weighted_shares(
            rows, [float(fanout.numbers(n, rng, (j, strata)).sum()) for j, n in enumerate(owners.rows)]
        )
        inside = [samples[key.parent] for key in models.keys if stays_inside(models.schema, table, key)]
        most = [max((parent.rows_between(*span) for parent in inside), default=0) for span in owners.units]
        counts = [range_count(max(b - a, n)) for (a, b), n in zip(pairwise(ends), most, strict=True)]
        alone = equal_shares(ownerless, sum(counts))
        for j, count in enumerate(counts):
            for place in range(count):
                before, after = alone[len(pieces) : len(pieces) + 2]
                pieces.append(Piece(ends[j] + before, ends[j + 1] - ends[j], j, place, count, after - before))
    return tuple(pieces) if len(pieces) > 1 else (Piece.whole(models),)


@dataclass(frozen=True)
class RangeDrawing:
    """Makes the ranges of a table, one at a time, and keeps them in files; each depends on its number alone.

    Attributes:
        models: Released.
        seed: Of the run.
        samples: The tables that rows refer to, and those with other children of the same owners, by name.
        parts: Where finished ranges are kept.
        pieces: The ranges, see `pieces_of`.
        allocated: References to other tables, as they are allocated to the ranges.
    """

    models: TableModels
    seed: int
    samples: Mapping[str, SampledTable]
    parts: PartFiles
    pieces: tuple[Piece, ...] = ()
    allocated: tuple[AllocatedKey, ...] = ()
    _held: dict[int | None, tuple[Parent, Numbers]] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, number: int) -> Listed:
        """Make a range and store it; one that an earlier run has finished is left as it is."""
        found = self.parts.finished(number)
        if found is None:
            made = self.made(number).to_artifact()
            found = self.parts.put(number, made), made
        digest, sample = found[0], Sample.from_artifact(found[1])
        return Listed(digest, sample.table.num_rows, self.owners[number], sample.dropped, span_of(sample.units))

    def drawn(self, workers: int | None, **facts: Any) -> Artifact:
        """Make all ranges in processes and list them; where there is one alone, the artifact holds its rows.

        Args:
            workers: Most processes at a time.
            facts: For the summary.
        """
        if len(self.owners) == 1:
            return self.made(0).to_artifact(**facts)
        drawing = self.with_allocated_keys(workers)
        try:
            listed = list(side_by_side(drawing, range(len(self.owners)), workers))
        finally:
            for allocated in drawing.allocated:
                allocated.forget()
        return replace(SampledTable.listing(listed, **facts), parts=self.parts)

    def with_allocated_keys(self, workers: int | None = None) -> Self:
        """Return the same with references to other tables allocated to ranges, in files next to the finished ones."""
        models, seed, found = self.models, self.seed, list[AllocatedKey]()
        keys = [k for k in models.keys if reach(models.schema, models.table, k) in (Reach.OWN, Reach.ALLOCATED)]
        rows = self._planned_rows(workers) if keys else ()
        for number, key in enumerate(keys):
            files, sizes = PartFiles(self.parts.folder / f"allocated-{number}"), self.samples[key.parent].rows
            referred, lookup = partial(self._referred, key), models.lookups[key.name]
            found.append(AllocatedKey.plan(models.table, key, lookup, referred, sizes, rows, seed, files))
        return replace(self, allocated=tuple(found))

    @property
    def owners(self) -> tuple[int, ...]:
        """For each range the range of owners that its rows belong to."""
        return tuple(piece.owners or 0 for piece in self.pieces)

    def made(self, number: int) -> Sample:
        """Return the rows of a range; their ``parents`` are rows of the range of their owners, along the owner key."""
        piece, models, owner = self.pieces[number], self.models, self.models.table.owner_key
        rng = sampling_rng(self.seed, "sample", models.table.name, str(number))
        here, rows, owners, before, start = None, Rows(piece.rows), None, piece.first, 0
        if owner is not None and models.fanout is not None:
            above, children, (start, stop) = self._children(piece)
            here, numbers = above.slice(start, stop), children[start:stop]
            rows, owners = children_of(models.fanout, here, numbers, piece.ownerless, rng, models.table)
            before += int(children[:start].sum())
        parents = self._linked(number, None if here is None else here.units)
        if owner is not None and here is not None:
            parents[owner.name] = here
        if piece.place == piece.of - 1:
            self._held.clear()
        total = sum(piece.rows for piece in self.pieces if piece.place == 0) + sum(p.ownerless for p in self.pieces)
        drawn = models.draw(rows, owners, parents, rng, (before, total))
        if owner is None:
            return replace(drawn, parents={})
        places = drawn.parents[owner.name]
        return replace(drawn, parents={owner.name: np.where(places < 0, -1, places + start)})

    def _linked(self, number: int, units: Numbers | None) -> dict[str, Parent]:
        """Return what the rows of a range, which belong to ``units``, may refer to off the ownership path, by key."""
        models = self.models
        parents = {allocated.key.name: allocated.range(number) for allocated in self.allocated}
        for key in models.keys:
            lookup = models.lookups[key.name]
            if units is not None and stays_inside(models.schema, models.table, key):
                above = self.samples[key.parent]
                found = models.parent(key.parent, above.of_units(units))
                scale = models.scale * found.table.num_rows / max(1, sum(above.rows))
                parents[key.name] = replace(found, lookup=lookup.at_scale(scale))
            elif key.name not in parents:
                parents[key.name] = replace(self._referred(key, None), lookup=lookup)
        return parents

    def _referred(self, key: ForeignKey, number: int | None) -> Parent:
        """Return the rows that a key refers to, with all that the link depends on: those of a range, or all of them."""
        owner = self.models.table.owner_key
        counted = self.models.counted.get(key.name, {})
        own = self._numbers(number)[1] if owner is not None and owner in counted else None
        return self.models.counting(key, self.samples, number, own)

    def _planned_rows(self, workers: int | None) -> Sequence[int]:
        """Return how many rows each range has before any are left out."""
        return list(side_by_side(self._planned, self.pieces, workers))

    def _planned(self, piece: Piece) -> int:
        if self.models.fanout is None:
            return piece.rows
        _, children, (start, stop) = self._children(piece)
        return int(children[start:stop].sum()) + piece.ownerless

    def _children(self, piece: Piece) -> tuple[Parent, Numbers, tuple[int, int]]:
        """Return a range of owners, how many children each has, and which of them are those of a piece."""
        above, numbers = self._numbers(piece.owners)
        cuts = cuts_between_units(numbers, np.asarray(above.units), piece.of)
        return above, numbers, (cuts[piece.place], cuts[piece.place + 1])

    def _numbers(self, owners: int | None) -> tuple[Parent, Numbers]:
        """Return the owners of a range, or all of them, and how many children each has."""
        models, owner = self.models, self.models.table.owner_key
        if owner is None or models.fanout is None:
            raise InternalError(f"{models.table.name}: rows of the unit's table have no owners")
        if owners not in self._held:
            self._held.clear()  # the pieces of one range of owners follow each other
            rows = next(piece.rows for piece in self.pieces if piece.owners == owners)
            rng = sampling_rng(self.seed, "children", models.table.name, str(owners or 0))
            parent = models.counting(owner, self.samples, owners)
            stratum = (0, 1) if owners is None else (owners, len(self.samples[owner.parent].rows))
            room = models.room(parent, self.samples)
            numbers = numbers_of_children(models.fanout, parent, rows, rng, room, stratum)
            self._held[owners] = parent, numbers
        return self._held[owners]


@dataclass(frozen=True)
class RangeCompletion(RangeDrawing):
    """Fills the deferred keys of a table range by range: its second pass, over the table as it is in ``samples``."""

    @property
    def first(self) -> SampledTable:
        """What the first pass has left."""
        return self.samples[self.models.table.name]

    @property
    def owners(self) -> tuple[int, ...]:
        """See `RangeDrawing.owners`."""
        return self.first.owners

    def made(self, number: int) -> Sample:
        """See `RangeDrawing.made`."""
        drawn = self.first.part(number)
        rng = sampling_rng(self.seed, "references", self.models.table.name, str(number))
        return self.models.complete(drawn, self._linked(number, drawn.units), rng)

    def _planned_rows(self, workers: int | None) -> Sequence[int]:
        return self.first.rows


def sampled_key(schema: Schema, table: Table) -> Key:
    """Return the key of the step that has the table's finished rows: the second pass, where it has deferred keys."""
    return ("sample", table.name, "references") if deferred_of(schema, table) else ("sample", table.name)


def deferred_of(schema: Schema, table: Table) -> tuple[ForeignKey, ...]:
    """Return the keys of a table that are filled in a second pass."""
    return tuple(key for key in table.foreign_keys if key.name in schema.deferred_keys)


def first_parents(schema: Schema, table: Table) -> list[str]:
    """Return the names of the tables that must be there before the first pass over ``table``."""
    return sorted({key.parent for key in table.foreign_keys if key.name not in schema.deferred_keys})


def model_inputs(schema: Schema, table: Table) -> list[Key]:
    """Return the released models that a sample of ``table`` is drawn from."""
    inputs: list[Key] = [("profile", table.name), ("model", table.name)]
    inputs += [fanout_key(key) for key in counted_beside(schema, table)]
    inputs += [fanout_key(key) for key in table.foreign_keys if key.name not in schema.deferred_keys]
    return inputs + [("profile", name) for name in first_parents(schema, table) if not schema.table(name).public]


def public_step(table: Table, free: Price) -> Step:
    """Return the step that publishes a public table as it is."""

    def run(context: StepContext) -> Artifact:
        return Sample(context.public[table.name], {}, None).to_artifact()

    parameters = {"table": table.name}
    return Step(("sample", table.name), StepKind.SAMPLE, table.name, (), (), free, run, parameters, version="2")


def sample_step(schema: Schema, table: Table, free: Price) -> Step:
    """Return the step that draws a private table."""
    parents, siblings = first_parents(schema, table), [key.child for key in counted_beside(schema, table)]

    def run(context: StepContext) -> Artifact:
        models = TableModels.of(schema, table, context.inputs, context.scale)
        samples = {name: SampledTable(context.inputs["sample", name]) for name in (*parents, *siblings)}
        ignored = ignored_checks(table)
        facts = {"checks not kept while sampling": ", ".join(ignored)} if ignored else {}
        pieces = pieces_of(models, context.seed, samples)
        return RangeDrawing(models, context.seed, samples, context.parts, pieces).drawn(context.workers, **facts)

    inputs = [*model_inputs(schema, table), *(("sample", name) for name in (*parents, *siblings))]
    return _drawing_step(schema, table, ("sample", table.name), inputs, free, run, DRAWING)


def complete_step(schema: Schema, table: Table, free: Price) -> Step:
    """Return the step that fills the deferred keys of a table: its second pass."""
    keys = deferred_of(schema, table)
    parents = sorted({key.parent for key in keys})
    inputs: list[Key] = [("sample", table.name), *(("sample", name) for name in parents), ("profile", table.name)]
    inputs += [*(("profile", name) for name in parents), *(fanout_key(key) for key in keys)]

    def run(context: StepContext) -> Artifact:
        models = TableModels.of_deferred(schema, table, context.inputs, context.scale)
        samples = {name: SampledTable(context.inputs["sample", name]) for name in (table.name, *parents)}
        return RangeCompletion(models, context.seed, samples, context.parts).drawn(context.workers)

    return _drawing_step(schema, table, sampled_key(schema, table), inputs, free, run, "3")


def _drawing_step(
    schema: Schema,
    table: Table,
    key: Key,
    inputs: Sequence[Key],
    free: Price,
    run: Callable[[StepContext], Artifact],
    version: str,
) -> Step:
    """Return the step that draws rows: all of the table's declaration that decides which may be drawn is part of it."""
    order = list(added_by(schema, table))
    parameters: dict[str, Any] = {
        "keys": [key_identity(key) for key in table.foreign_keys],
        "deferred": [key.name for key in deferred_of(schema, table)],
        "primary key": list(table.primary_key),
        "unique": [list(columns) for columns in table.unique],
        "units": table.name in schema.tables_of_units,
        **({"added by": order} if order else {}),
        **constraints_identity(table.checks, table.dependencies),
        **_IN_RANGES,
        "rows of a range": guards.RANGE_ROWS,
    }
    once, depends = tuple(dict.fromkeys(inputs)), ("seed", "scale")
    return Step(key, StepKind.SAMPLE, table.name, once, (), free, run, parameters, version=version, depends=depends)
