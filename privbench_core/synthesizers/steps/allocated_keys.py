"""References to other tables, allocated to the ranges of a table beforehand: every parent stays as popular as over all.

Each parent has as many *places* as it is to be referred to. If the rows of each range chose among all parents by
themselves, caps would not hold, and if each range had parents of its own, none could have more rows than a range. So
each range gets some places of each kind of parent, and of each parent that has many: its share of them.

Which synthetic parents are popular is decided once: ranks by popularity are shuffled over all parents. Then one range
of parents after the other gets the degrees of its ranks, by kinds of parents, as far as these still lack references.
What is stored is as large as the parents' keys; no process holds more than a few ranges of them. Rows that refer to
rows of their own table get all places of their own range, so that it can be seen to have no cycle. How often each
public parent is referred to is released.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.arrays import Array, Numbers
from privbench_core.columns.codec import Codes
from privbench_core.columns.systematic import systematic_counts
from privbench_core.errors import InternalError
from privbench_core.guards import MAX_CELLS
from privbench_core.links.lookup import ROW, TARGET, Lookup
from privbench_core.links.popularity import ByRank, ByRow, allocated_degrees, raked
from privbench_core.sampling.ranges import is_unique, weighted_shares
from privbench_core.sampling.references import Parent
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table
from privbench_core.synthesizers.artifact import Artifact, PartFiles
from privbench_core.synthesizers.contract import sampling_rng

Rng = np.random.Generator


@dataclass(frozen=True)
class Allocation:
    """Which places each range of rows gets, known without a list of them.

    Places come in blocks as long as there are slots, 2^k, and ranges have slots in proportion to their rows. Place i of
    a block is in slot (i·g + o) mod 2^k, where g is the odd number next to the golden section of 2^k and o a random
    offset of the block. Consecutive places, those of a parent and of a kind, are so spread evenly over the ranges.

    Attributes:
        ends: Where the slots of each range begin, and where the last ones end; shape (ranges + 1,).
    """

    ends: tuple[int, ...]

    @classmethod
    def by_rows(cls, rows: Sequence[int]) -> Allocation:
        """Return the allocation to ranges of so many rows each."""
        slots = 1 << ((len(rows) << 10) - 1).bit_length()  # a range's share is exact to one in about a thousand
        return cls(tuple(weighted_shares(slots, rows)))

    def places(self, number: int, count: int, rng: Rng) -> Numbers:
        """Return which of ``count`` places a range gets, ascending: about as many as are its share.

        Args:
            number: Of the range.
            count: Places in all.
            rng: The same for every range: then each place is in one range.

        >>> allocation = Allocation.by_rows([1, 3])
        >>> found = [allocation.places(number, 1000, np.random.default_rng(0)) for number in range(2)]
        >>> [len(places) for places in found], (np.sort(np.concatenate(found)) == np.arange(1000)).all().item()
        ([249, 751], True)
        """
        slots = self.ends[-1]
        offsets = rng.integers(0, slots, -(-count // slots))
        mine = np.arange(*self.ends[number : number + 2])
        back = pow(round(slots * (5**0.5 - 1) / 2) | 1, -1, slots)
        inside = (mine - offsets[:, np.newaxis]) % slots * back % slots
        found = np.sort((inside + np.arange(len(offsets))[:, np.newaxis] * slots).ravel())
        return np.asarray(found[found < count], dtype=np.int64)

    def allocated(self, number: int, degrees: Numbers, rng: Rng) -> Numbers:
        """Return how many `places` of each parent a range gets, shape (parents,); parents of a kind are neighbours."""
        ends = np.cumsum(degrees)
        places = self.places(number, int(ends[-1]) if len(ends) else 0, rng)
        parents = np.searchsorted(ends, places, side="right")
        return np.asarray(np.bincount(parents, minlength=len(degrees)), dtype=np.int64)


@dataclass(frozen=True)
class AllocatedKey:
    """The places of all parents along a key, and which of them each range of rows gets."""

    key: ForeignKey
    lookup: Lookup
    bounded: bool  # whether only so many rows may refer to a parent
    allocation: Allocation
    seed: int
    files: PartFiles  # for each range of parents, their keys and codes, and how many places they have
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
        """Decide how often each parent is referred to; ``coded`` ranges have codes of what the link depends on."""
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
            used = (*key.parent_columns, *(name for common in lookup.common for name in common.theirs))
            columns = here.table.select(list(dict.fromkeys(used)))
            digests.append(files.put(number, Artifact(stored, columns.take(pa.array(order)))))
        return cls(key, lookup, most is not None, Allocation.by_rows(rows), seed, files, tuple(digests))

    def range(self, number: int) -> Parent:
        """Return the parents that a range of rows may refer to, with their room, and the link for their places.

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
        tables, all_codes, all_places, all_spare = zip(*found, strict=True)
        codes = {name: np.concatenate([codes[name] for codes in all_codes]) for name in all_codes[0]}
        places = np.concatenate(all_places)
        sizes = {name.removeprefix(TARGET): d.size for name, d in self.lookup.targets.items()}
        room = places + np.concatenate(all_spare) if self.bounded and not own else None
        return Parent(pa.concat_tables(tables), codes, sizes, None, None, room, self.lookup.with_places(places))

    def forget(self) -> None:
        """Delete the files."""
        _read.cache_clear()
        shutil.rmtree(self.files.folder, ignore_errors=True)


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
    lookup: Lookup, coded: Callable[[int], Parent], sizes: Sequence[int], references: int, most: int | None, rng: Rng
) -> Degrees:
    """Yield how often each private parent is to be referred to, by its rank among all of them and by its kind.

    Where at most one row may refer to a parent (``most``), each has a place, whichever row gets it.
    """
    popularity, total = lookup.popularity, max(1, sum(sizes))
    kinds, room = dict[str, int](), np.zeros(1)
    for number in range(len(sizes)):
        parent = coded(number)
        if number == 0:
            kinds = _kind_sizes(lookup, parent)
            room = np.zeros(math.prod(kinds.values()))
        room += np.bincount(_kinds_of(parent, kinds), minlength=len(room))
    lacking = _wanted(lookup, kinds, room, references)
    range_of_rank = rng.permutation(np.repeat(np.arange(len(sizes), dtype=np.uint16), sizes))
    for number in range(len(sizes)):
        here, ranks = coded(number), np.flatnonzero(range_of_rank == number)
        present, kind = np.unique(_kinds_of(here, kinds), return_inverse=True)
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


def _kind_sizes(lookup: Lookup, parent: Parent) -> dict[str, int]:
    """Return the number of codes of the targets by which parents differ in kind, as far as a table fits in memory."""
    sizes = dict[str, int]()
    for name in lookup.kind_columns(parent.codes):
        size = lookup.targets[name].size
        if name.removeprefix(TARGET) in parent.codes and math.prod(sizes.values()) * size <= MAX_CELLS:
            sizes[name] = size
    return sizes


def _kinds_of(parent: Parent, sizes: Mapping[str, int]) -> Numbers:
    """Return the number of the kind of each parent, a combination of codes of these targets; shape (parents,)."""
    if not sizes:
        return np.zeros(parent.table.num_rows, dtype=np.int64)
    codes = [parent.codes[name.removeprefix(TARGET)].astype(np.int64) for name in sizes]
    return np.asarray(np.ravel_multi_index(codes, tuple(sizes.values())), dtype=np.int64)


def _wanted(lookup: Lookup, kinds: Mapping[str, int], room: Array, references: int) -> Array:
    """Return how many references each kind is to get, given the parents of each; shape (kinds,)."""
    codes = np.unravel_index(np.arange(len(room)), tuple(kinds.values())) if kinds else ()
    margins = [
        (np.asarray(of), lookup.marginals[name][:size]) for (name, size), of in zip(kinds.items(), codes, strict=True)
    ]
    wanted = raked(room, margins)
    return wanted * (references / wanted.sum()) if wanted.any() else np.zeros(len(wanted))


@lru_cache(16)  # of a million rows or less; one range of rows after the other reads the same
def _read(folder: Path, number: int, digest: str) -> Artifact:
    return PartFiles(folder).get(number, digest)


def _narrow(numbers: Numbers) -> NDArray[np.unsignedinteger[Any]]:
    """Return numbers in as few bytes as hold them: each range of rows reads those of all parents."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _spare(degrees: Numbers, most: int | None, usual: float) -> Numbers:
    """Return the places of each parent beyond its degree: a range may ask for a kind twice as often as others."""
    if most is None:
        return np.zeros_like(degrees)
    return np.minimum(most - degrees, degrees + math.ceil(2 * usual))
