"""References to other tables, allocated to the ranges of a table beforehand (`sampling.allocation`).

Which synthetic parents are popular is decided once: ranks by popularity are shuffled over all parents. Then one range
of parents after the other gets the degrees of its ranks, by kinds of parents, as far as these still lack references.
What is stored is as large as the parents' keys; no process holds more than a few ranges of them. Rows that refer to
rows of their own table get all places of their own range, so that it can be seen to have no cycle. How often each
public parent is referred to is released.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.systematic import systematic_counts
from privbench_core.errors import InternalError
from privbench_core.guards import HELD_FILES, MAX_CELLS
from privbench_core.models.lookup import ROW, TARGET, Lookup
from privbench_core.models.popularity import ByRank, ByRow, allocated_degrees, raked
from privbench_core.sampling.allocation import Allocation
from privbench_core.sampling.ranges import is_unique
from privbench_core.sampling.references import Parent
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table
from privbench_core.synthesizers.artifact import Artifact, PartFiles
from privbench_core.synthesizers.contract import sampling_rng
from privbench_core.synthesizers.steps.sampled import SampledTable

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
Rng = np.random.Generator


@dataclass(frozen=True)
class AllocatedKey:
    """The places of all parents along a key, and which of them each range of rows gets.

    Attributes:
        key: Off the ownership path.
        lookup: Released, of the key.
        bounded: Whether only so many rows may refer to a parent.
        allocation: Of places to ranges of rows.
        seed: Of the run.
        files: One for each range of parents: their keys and codes, and how many places they have.
        digests: Of the files.
    """

    key: ForeignKey
    lookup: Lookup
    bounded: bool
    allocation: Allocation
    seed: int
    files: PartFiles
    digests: tuple[str, ...]

    @classmethod
    def plan(
        cls,
        table: Table,
        key: ForeignKey,
        lookup: Lookup,
        coded: Callable[[int], Parent],
        sizes: Sequence[int],
        rows: Sequence[int],
        seed: int,
        files: PartFiles,
    ) -> AllocatedKey:
        """Decide how often each parent is referred to.

        Args:
            table: The referring one.
            key: Of it.
            lookup: Released, of the key.
            coded: A range of the parents, with codes of what the link looks at.
            sizes: Parents of each range.
            rows: Planned for each range of the referring table.
            seed: Of the run.
            files: For what is decided.
        """
        rng = sampling_rng(seed, "degrees", key.name)
        most = 1 if is_unique(table, key) else key.max_children
        references = round(sum(rows) * (1 - lookup.none))
        allocated = _public_degrees if isinstance(lookup.popularity, ByRow) else _private_degrees
        digests = []
        for number, (here, kind, found) in enumerate(allocated(lookup, coded, sizes, references, most, rng)):
            degrees = found if most is None else np.minimum(found, most)
            spread = key.parent != key.child and here.codes  # public rows stay where they are
            order = np.lexsort((rng.random(len(kind)), kind)) if spread else np.arange(len(kind))
            places = degrees[order].astype(np.int64)
            names = [name for name in here.codes if f"{TARGET}{name}" in lookup.targets]
            stored = {
                "degrees": _narrow(places),
                "spare": _narrow(_spare(places, most, references / max(sum(sizes), 1))),
                "codes": [[name, here.codes[name][order]] for name in names],
            }
            columns = here.table.select(list(dict.fromkeys(key.parent_columns)))
            digests.append(files.put(number, Artifact(stored, columns.take(pa.array(order)))))
        return cls(key, lookup, most is not None, Allocation.by_rows(rows), seed, files, tuple(digests))

    def range(self, number: int) -> tuple[Parent, Lookup]:
        """The parents that a range of rows may refer to, with their room, and the link to draw these references by.

        Public ones are all there, as a link knows them by their position; those without room get no row of the range.
        """
        found: list[tuple[pa.Table, dict[str, Codes], Numbers, Numbers]] = []
        own, public = self.key.parent == self.key.child, ROW in self.lookup.targets
        for part in (number,) if own else range(len(self.digests)):
            stored = _read(self.files.folder, part, self.digests[part])
            places, spare = (stored.data[name].astype(np.int64) for name in ("degrees", "spare"))
            if not own:
                rng = sampling_rng(self.seed, "allocated", self.key.name, str(part))
                places, spare = (self.allocation.allocated(number, each, rng) for each in (places, spare))
            some = np.arange(len(places)) if own or public else np.flatnonzero(places + spare)
            codes = {name: values[some] for name, values in stored.data["codes"]}
            if stored.table is None:
                raise InternalError(f"{self.key.name}: parents were stored without their keys")
            found.append((stored.table.take(pa.array(some)), codes, places[some], spare[some]))
        rows = pa.concat_tables([rows for rows, *_ in found])
        codes = {name: np.concatenate([codes[name] for _, codes, *_ in found]) for name in found[0][1]}
        places, spare = (np.concatenate([each[which] for each in found]) for which in (2, 3))
        sizes = {name.removeprefix(TARGET): d.size for name, d in self.lookup.targets.items()}
        room = places + spare if self.bounded and not own else None
        return Parent(rows, codes, sizes, None, None, room), self.lookup.with_places(places)

    def forget(self) -> None:
        """Delete the files."""
        _read.cache_clear()
        shutil.rmtree(self.files.folder, ignore_errors=True)


def allocate(
    table: Table,
    keys: Sequence[ForeignKey],
    lookups: Mapping[str, Lookup],
    coded: Callable[[ForeignKey, int], Parent],
    parents: Mapping[str, SampledTable],
    rows: Sequence[int],
    seed: int,
    folder: Path,
) -> tuple[AllocatedKey, ...]:
    """Allocate the references along some keys of a table to its ranges.

    Args:
        table: The referring one.
        keys: Of it, those that reach rows of its own, or rows that have places (`ranges.reach`).
        lookups: Released, by key name.
        coded: A range of the rows that a key refers to, with codes of what the link looks at.
        parents: By table name.
        rows: Planned for each range.
        seed: Of the run.
        folder: For a folder of files for each key.
    """
    found: list[AllocatedKey] = []
    for number, key in enumerate(keys):
        files, sizes = PartFiles(folder / f"allocated-{number}"), parents[key.parent].rows
        found.append(AllocatedKey.plan(table, key, lookups[key.name], partial(coded, key), sizes, rows, seed, files))
    return tuple(found)


Degrees = Iterator[tuple[Parent, Numbers, Array]]
"""For each range: its parents, and the kind and the degree of each of them, shape (parents,)."""


def _public_degrees(
    lookup: Lookup, coded: Callable[[int], Parent], sizes: Sequence[int], references: int, _: object, rng: Rng
) -> Degrees:
    """Yield how often each public parent is to be referred to: as released, in whole numbers."""
    total, numbers = sum(sizes), np.zeros(sum(sizes), dtype=np.int64)
    if total and isinstance(lookup.popularity, ByRow):
        shares = np.cumsum(lookup.popularity.counts if lookup.popularity.counts.any() else np.ones(total))
        numbers = systematic_counts(shares / shares[-1], numbers, np.array([references]), rng)
    yield coded(0), np.zeros(total, dtype=np.int64), numbers.astype(np.float64)


def _private_degrees(
    lookup: Lookup,
    coded: Callable[[int], Parent],
    sizes: Sequence[int],
    references: int,
    most: int | None,
    rng: Rng,
) -> Degrees:
    """Yield how often each private parent is to be referred to, by its rank among all of them and by its kind.

    Args:
        lookup: Released.
        coded: As in `AllocatedKey.plan`.
        sizes: As there.
        references: To all parents.
        most: Of one parent; where it is 1, each has a place, whichever row gets it.
        rng: Sampling only.
    """
    popularity, total = lookup.popularity, max(1, sum(sizes))
    kinds = _Kinds.of(lookup, map(coded, range(len(sizes))))
    lacking = kinds.wanted(lookup, references)
    range_of_rank = rng.permutation(np.repeat(np.arange(len(sizes), dtype=np.uint16), sizes))
    for number in range(len(sizes)):
        here, ranks = coded(number), np.flatnonzero(range_of_rank == number)
        present, kind = np.unique(kinds.of_parents(here), return_inverse=True)
        if most == 1:
            degrees = np.ones(len(ranks))
        elif isinstance(popularity, ByRank):
            degrees = popularity.degrees(total, references, ranks)
        else:
            degrees = np.rint((ranks + 1) * (references / total)) - np.rint(ranks * (references / total))
        if len(degrees) and degrees.min() < degrees.max():
            share = np.maximum(lacking, 0.0) * (degrees.sum() / max(float(np.maximum(lacking, 0.0).sum()), 1.0))
            degrees = allocated_degrees(degrees, kind, share[present], rng)
        lacking[present] -= np.bincount(kind, degrees, len(present))
        yield here, kind, degrees


@dataclass(frozen=True)
class _Kinds:
    """Kinds of parents: combinations of codes of the targets that a link tells them apart by.

    Attributes:
        columns: These targets.
        shape: Number of codes of each.
        room: Parents of each kind, shape (kinds,).
    """

    columns: tuple[str, ...]
    shape: tuple[int, ...]
    room: Array

    @classmethod
    def of(cls, lookup: Lookup, parts: Iterable[Parent]) -> _Kinds:
        """Return the kinds of all parents, given range by range."""
        kinds = cls((), (), np.zeros(1))
        for parent in parts:
            if not kinds.room.any():
                columns, shape = _columns(lookup, parent)
                kinds = cls(columns, shape, np.zeros(math.prod(shape)))
            room = np.bincount(kinds.of_parents(parent), minlength=len(kinds.room))
            kinds = replace(kinds, room=kinds.room + room)
        return kinds

    def wanted(self, lookup: Lookup, references: int) -> Array:
        """Return how many references each kind is to get, shape (kinds,)."""
        codes = np.unravel_index(np.arange(len(self.room)), self.shape) if self.shape else ()
        margins = [
            (np.asarray(of), lookup.marginals[name][:size])
            for name, size, of in zip(self.columns, self.shape, codes, strict=True)
        ]
        wanted = raked(self.room, margins)
        return wanted * (references / wanted.sum()) if wanted.any() else np.zeros(len(wanted))

    def of_parents(self, parent: Parent) -> Numbers:
        """Return the number of the kind of each parent, shape (parents,)."""
        if not self.columns:
            return np.zeros(parent.table.num_rows, dtype=np.int64)
        codes = [parent.codes[name.removeprefix(TARGET)].astype(np.int64) for name in self.columns]
        return np.asarray(np.ravel_multi_index(codes, self.shape), dtype=np.int64)


def _columns(lookup: Lookup, parent: Parent) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """What tells kinds apart, as far as a table of them can be held, and the number of codes of each."""
    columns, shape = list[str](), list[int]()
    for name in lookup.kind_columns(parent.codes):
        size = lookup.targets[name].size
        if name.removeprefix(TARGET) in parent.codes and math.prod(shape) * size <= MAX_CELLS:
            columns.append(name)
            shape.append(size)
    return tuple(columns), tuple(shape)


@lru_cache(HELD_FILES)  # one range of rows after the other reads the same
def _read(folder: Path, number: int, digest: str) -> Artifact:
    """Return a file of parents."""
    return PartFiles(folder).get(number, digest)


def _narrow(numbers: Numbers) -> NDArray[np.unsignedinteger[Any]]:
    """Return numbers in as few bytes as hold them: each range of rows reads those of all parents."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _spare(degrees: Numbers, most: int | None, usual: float) -> Numbers:
    """Return the places of each parent beyond its degree, for rows of a range that has too few of what they ask for.

    A kind may be asked for twice as often in a range as in others.
    """
    if most is None:
        return np.zeros_like(degrees)
    return np.minimum(most - degrees, degrees + math.ceil(2 * usual))
