"""References to other tables, allocated to the ranges of a table beforehand (`sampling.allocation`).

Which synthetic parents are popular is decided once, range of parents by range of parents: those that come first get the
first ranks, and what they leave of the references that a kind of parent is to get is shared by the next ones. What is
stored is as large as the parents' keys; no process holds more than a range of them. Rows that refer to rows of their
own table get all places of their own range, so that it can be seen to have no cycle.

Public parents are known to every range, and how often each is referred to is released.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from privbench_core.models.lookup import TARGET, Lookup
from privbench_core.models.popularity import ByRank, ByRow, allocated_degrees, raked
from privbench_core.sampling.allocation import Allocation, ranks_of
from privbench_core.sampling.ranges import is_unique
from privbench_core.sampling.references import Parent
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table
from privbench_core.synthesizers.artifact import Artifact, PartFiles
from privbench_core.synthesizers.contract import sampling_rng
from privbench_core.synthesizers.steps.sampled import SampledTable

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
_HELD = 8  # files of parents that a process keeps: each of up to a million parents, in ten to twenty bytes
_MOST_LABELS = 1 << 62  # numbers of combinations of codes
_SPARE = 2.0  # places per mean degree, chosen by hand: a kind may be asked for twice as often in a range as in others


@dataclass(frozen=True)
class AllocatedKey:
    """The places of all private parents along a key, and which of them each range of rows gets.

    Attributes:
        key: To a private table.
        lookup: Released, of the key.
        allocation: Of places to ranges of rows.
        seed: Of the run.
        files: One for each range of parents: their keys and codes, and how many places they have.
        digests: Of the files.
    """

    key: ForeignKey
    lookup: Lookup
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
        parents: SampledTable,
        rows: Sequence[int],
        seed: int,
        files: PartFiles,
    ) -> AllocatedKey:
        """Decide how often each parent is referred to.

        Args:
            table: The referring one.
            key: To a private table.
            lookup: Released, of the key.
            coded: A range of the parents, with codes of what the link looks at.
            parents: All of them.
            rows: Planned for each range of the referring table.
            seed: Of the run.
            files: For what is decided.
        """
        most = 1 if is_unique(table, key) else key.max_children
        rng = sampling_rng(seed, "degrees", key.name)
        sizes, turns = parents.rows, rng.permutation(len(parents.rows))
        total, references = sum(sizes), round(sum(rows) * (1 - lookup.none))
        kinds = _Kinds.of(lookup, map(coded, range(len(sizes))))
        lacking, digests = kinds.wanted(lookup, references), [""] * len(sizes)
        for number in np.argsort(turns).tolist():
            here = coded(number)
            kind = kinds.of_parents(here)
            degrees = _degrees(lookup, ranks_of(sizes, turns, number), total, references, most)
            if len(degrees) and degrees.min() < degrees.max():
                share = np.maximum(lacking, 0.0)
                degrees = allocated_degrees(degrees, kind, share * (degrees.sum() / max(float(share.sum()), 1.0)), rng)
            lacking -= np.bincount(kind, degrees, minlength=len(lacking))
            own = key.parent == key.child
            order = np.arange(len(kind)) if own else np.lexsort((rng.random(len(kind)), kind))
            places = degrees[order].astype(np.int64)
            names = [name for name in here.codes if f"{TARGET}{name}" in lookup.targets]
            stored = {
                "degrees": _narrow(places),
                "spare": _narrow(_spare(places, most, references / max(total, 1))),
                "codes": [[name, here.codes[name][order]] for name in names],
            }
            columns = here.table.select(list(dict.fromkeys(key.parent_columns)))
            digests[number] = files.put(number, Artifact(stored, columns.take(pa.array(order))))
        return cls(key, lookup, Allocation.by_rows(rows), seed, files, tuple(digests))

    def range(self, number: int) -> tuple[Parent, Lookup]:
        """The parents that a range of rows may refer to, with their room, and the link to draw these references by."""
        found: list[tuple[pa.Table, dict[str, Codes], Numbers, Numbers]] = []
        own = self.key.parent == self.key.child
        for part in (number,) if own else range(len(self.digests)):
            kept = not own and part < _HELD
            stored = (_held if kept else _read)(self.files.folder, part, self.digests[part])
            places, spare = (stored.data[name].astype(np.int64) for name in ("degrees", "spare"))
            if not own:
                rng = sampling_rng(self.seed, "allocated", self.key.name, str(part))
                places, spare = (self.allocation.allocated(number, each, rng) for each in (places, spare))
            some = np.arange(len(places)) if own else np.flatnonzero(places + spare)
            codes = {name: values[some] for name, values in stored.data["codes"]}
            if stored.table is None:
                raise InternalError(f"{self.key.name}: parents were stored without their keys")
            rows = stored.table.take(pa.array(some))
            found.append((rows, codes, places[some], spare[some]))
        rows = pa.concat_tables([rows for rows, *_ in found])
        codes = {name: np.concatenate([codes[name] for _, codes, *_ in found]) for name in found[0][1]}
        places, spare = (np.concatenate([each[which] for each in found]) for which in (2, 3))
        sizes = {name.removeprefix(TARGET): d.size for name, d in self.lookup.targets.items()}
        room = None if own or self.key.max_children is None else places + spare
        parent = Parent(rows, codes, sizes, None, None, room)
        return parent, self.lookup.with_places(places)

    def forget(self) -> None:
        """Delete the files."""
        _held.cache_clear()
        shutil.rmtree(self.files.folder, ignore_errors=True)


@dataclass(frozen=True)
class AllocatedPublicKey:
    """The places of all public parents along a key, and which of them each range of rows gets.

    Attributes:
        key: To a public table, to whose rows only so many rows may refer.
        lookup: Released, of the key.
        allocation: Of places to ranges of rows.
        seed: Of the run.
        parents: All public rows.
        degrees: How often each is to be referred to, shape (parents,).
        spare: Places beyond, shape (parents,).
    """

    key: ForeignKey
    lookup: Lookup
    allocation: Allocation
    seed: int
    parents: pa.Table
    degrees: Numbers
    spare: Numbers

    @classmethod
    def plan(
        cls, table: Table, key: ForeignKey, lookup: Lookup, parents: pa.Table, rows: Sequence[int], seed: int
    ) -> AllocatedPublicKey:
        """Decide how often each parent is referred to; arguments as in `AllocatedKey.plan`."""
        most = 1 if is_unique(table, key) else (key.max_children or 1)
        rng = sampling_rng(seed, "degrees", key.name)
        count, references = parents.num_rows, round(sum(rows) * (1 - lookup.none))
        expected = lookup.popularity.counts if isinstance(lookup.popularity, ByRow) else np.ones(count)
        shares = np.cumsum(expected) / expected.sum() if expected.any() else np.linspace(0, 1, count + 1)[1:]
        single = np.zeros(count, dtype=np.int64)  # one group of all parents
        numbers = systematic_counts(shares, single, np.array([references]), rng) if count else single
        degrees = np.minimum(numbers, most).astype(np.int64)
        allocation = Allocation.by_rows(rows)
        return cls(key, lookup, allocation, seed, parents, degrees, _spare(degrees, most, references / max(count, 1)))

    def range(self, number: int) -> tuple[Parent, Lookup]:
        """As `AllocatedKey.range`, with all parents: those without room are referred to by no row of the range."""
        rng = sampling_rng(self.seed, "allocated", self.key.name)
        places, spare = (self.allocation.allocated(number, each, rng) for each in (self.degrees, self.spare))
        parent = Parent(self.parents, {}, {}, None, None, places + spare)
        return parent, self.lookup.with_places(places)

    def forget(self) -> None:
        """Delete nothing: there are no files."""


Allocated = AllocatedKey | AllocatedPublicKey


def allocate(
    table: Table,
    keys: Sequence[ForeignKey],
    lookups: Mapping[str, Lookup],
    coded: Callable[[ForeignKey, int], Parent],
    parents: Mapping[str, SampledTable | pa.Table],
    rows: Sequence[int],
    seed: int,
    folder: Path,
) -> tuple[Allocated, ...]:
    """Allocate the references along some keys of a table to its ranges.

    Args:
        table: The referring one.
        keys: Of it, those of `sampling.ranges.allocated_keys`, and to its own rows.
        lookups: Released, by key name.
        coded: A range of the private rows that a key refers to, with codes of what the link looks at.
        parents: By table name; public ones as rows.
        rows: Planned for each range.
        seed: Of the run.
        folder: For a folder of files for each key.
    """
    found: list[Allocated] = []
    for number, key in enumerate(keys):
        lookup, above = lookups[key.name], parents[key.parent]
        if isinstance(above, pa.Table):
            found.append(AllocatedPublicKey.plan(table, key, lookup, above, rows, seed))
        else:
            files = PartFiles(folder / f"allocated-{number}")
            found.append(AllocatedKey.plan(table, key, lookup, partial(coded, key), above, rows, seed, files))
    return tuple(found)


@dataclass(frozen=True)
class _Kinds:
    """Kinds of parents: combinations of codes of the targets that a link tells them apart by.

    Attributes:
        columns: These targets.
        shape: Number of codes of each.
        labels: Number of each combination that there is, ascending; shape (kinds,).
        room: Parents of each, shape (kinds,).
    """

    columns: tuple[str, ...]
    shape: tuple[int, ...]
    labels: Numbers
    room: Array

    @classmethod
    def of(cls, lookup: Lookup, parts: Iterable[Parent]) -> _Kinds:
        """Return the kinds of all parents, given range by range."""
        kinds = cls((), (), np.zeros(0, dtype=np.int64), np.zeros(0))
        for parent in parts:
            if not len(kinds.labels) and parent.table.num_rows:
                kinds = cls(*_columns(lookup, parent), kinds.labels, kinds.room)
            found, room = np.unique(kinds._labelled(parent), return_counts=True)
            labels, place = np.unique(np.append(kinds.labels, found), return_inverse=True)
            rooms: Array = np.bincount(place, np.append(kinds.room, room), len(labels)).astype(np.float64)
            kinds = replace(kinds, labels=labels, room=rooms)
        return kinds

    def wanted(self, lookup: Lookup, references: int) -> Array:
        """Return how many references each kind is to get, shape (kinds,)."""
        margins = [
            (np.asarray(codes), lookup.marginals[name][:size])
            for name, size, codes in zip(
                self.columns, self.shape, np.unravel_index(self.labels, self.shape or (1,)), strict=False
            )
        ]
        wanted = raked(self.room, margins)
        return wanted * (references / wanted.sum()) if wanted.any() else self.room * 0.0

    def of_parents(self, parent: Parent) -> Numbers:
        """Return the number of the kind of each parent, shape (parents,)."""
        return np.searchsorted(self.labels, self._labelled(parent)).astype(np.int64)

    def _labelled(self, parent: Parent) -> Numbers:
        if not self.columns:
            return np.zeros(parent.table.num_rows, dtype=np.int64)
        codes = [parent.codes[name.removeprefix(TARGET)].astype(np.int64) for name in self.columns]
        return np.asarray(np.ravel_multi_index(codes, self.shape), dtype=np.int64)


def _columns(lookup: Lookup, parent: Parent) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """What tells kinds apart, as far as combinations can be numbered."""
    columns, shape = list[str](), list[int]()
    for name in lookup.kind_columns(parent.codes):
        if math.prod(shape) * lookup.targets[name].size < _MOST_LABELS:
            columns.append(name)
            shape.append(lookup.targets[name].size)
    return tuple(columns), tuple(shape)


def _degrees(lookup: Lookup, ranks: Numbers, parents: int, references: int, most: int | None) -> Array:
    """Return the references to the parents of some ranks, at most as many as one may have."""
    if most == 1:  # whichever a row gets, no other row does
        return np.ones(len(ranks))
    if isinstance(lookup.popularity, ByRank):
        degrees = lookup.popularity.degrees(parents, references, ranks)
    else:
        degrees = np.rint((ranks + 1) * (references / parents)) - np.rint(ranks * (references / parents))
    return degrees if most is None else np.minimum(degrees, most)


def _read(folder: Path, number: int, digest: str) -> Artifact:
    """Return a file of parents."""
    return PartFiles(folder).get(number, digest)


_held = lru_cache(_HELD)(_read)  # one range of rows after the other reads the same


def _narrow(numbers: Numbers) -> NDArray[np.unsignedinteger[Any]]:
    """Return numbers in as few bytes as hold them: each range of rows reads those of all parents."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


def _spare(degrees: Numbers, most: int | None, usual: float) -> Numbers:
    """Return the places of each parent beyond its degree, for rows of a range that has too few of what they ask for."""
    if most is None:
        return np.zeros_like(degrees)
    return np.minimum(most - degrees, degrees + math.ceil(_SPARE * usual))
