"""Synthetic tables as sample steps leave them: in one piece, or in ranges that are read when they are asked for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.differences import base_values, beside_rows, encoded
from privbench_core.columns.discretizer import Discretizer
from privbench_core.errors import InternalError
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Table
from privbench_core.stored import Storable, fields_of, restored, stored_form
from privbench_core.synthesizers.artifact import Artifact, PartFiles


@dataclass(frozen=True)
class Sample:
    """A synthetic (or public) table.

    Attributes:
        table: Its rows.
        parents: Foreign key name -> row number of each row's parent, -1 for NULL.
        weights: How much each row counts in the measure of its model: less than 1 for rows of units that have more than
            are counted in full; None where each counts 1.
        dropped: Why rows were dropped while sampling -> how many.
        units: Number of the unit of each row of a private table.
        latents: Latent attribute -> number of its codes, and the code of each row.
        bases: What of the owner's columns are relative to -> numbers of its values, see `base_numbers`.
    """

    table: pa.Table
    parents: Mapping[str, NDArray[np.int64]]
    weights: NDArray[np.float64] | None
    dropped: Mapping[str, int] = field(default_factory=dict)
    units: NDArray[np.int64] | None = None
    latents: Mapping[str, tuple[int, Codes]] = field(default_factory=dict)
    bases: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def encoded(self, table: Table, discretizers: Mapping[str, Discretizer]) -> dict[str, Codes]:
        """Return the codes of some attributes, each of shape (rows,)."""
        rows = beside_rows(self.table, base_values(table, self.bases)) if self.bases else self.table
        return encoded(table, rows, discretizers)

    def to_artifact(self, **facts: Any) -> Artifact:
        """Return it as a step stores it, with more ``facts`` for its summary."""
        summary = _summary({"rows": self.table.num_rows, **facts}, self.dropped)
        data = {name: stored_form(part) for name, part in fields_of(self) if name != "table"}
        return Artifact({**data, "summary": summary}, self.table)

    @classmethod
    def from_artifact(cls, stored: Artifact) -> Sample:
        """Return the inverse of `to_artifact`; of a table in ranges, all of them, see `SampledTable.whole`."""
        if "parts" in stored.data:
            return SampledTable(stored).whole()
        names = (field.name for field in fields(cls) if field.name != "table")
        return cls(_rows_of(stored), **{name: restored(stored.data[name]) for name in names})

    @classmethod
    def joined(cls, parts: Sequence[Sample]) -> Sample:
        """Return all rows of several samples, in order; of more than one without their parents."""
        if len(parts) == 1:
            return parts[0]
        first, weights = parts[0], None
        if any(part.weights is not None for part in parts):
            weights = np.concatenate([np.ones(p.table.num_rows) if p.weights is None else p.weights for p in parts])
        units = [part.units for part in parts if part.units is not None]
        latents = {
            name: (size, np.concatenate([part.latents[name][1] for part in parts]))
            for name, (size, _) in first.latents.items()
        }
        bases = {name: np.concatenate([part.bases[name] for part in parts]) for name in first.bases}
        table, dropped = _together([part.table for part in parts]), _all_dropped(parts)
        return cls(table, {}, weights, dropped, np.concatenate(units) if units else None, latents, bases)

    def some(self, which: NDArray[np.bool_]) -> Sample:
        """Return some rows, without their parents."""
        weights = None if self.weights is None else self.weights[which]
        units = None if self.units is None else self.units[which]
        latents = {name: (size, codes[which]) for name, (size, codes) in self.latents.items()}
        bases = {name: numbers[which] for name, numbers in self.bases.items()}
        return Sample(self.table.filter(pa.array(which)), {}, weights, {}, units, latents, bases)


@dataclass(frozen=True)
class Listed(Storable):
    """A finished range of rows, as a step's artifact lists it."""

    digest: str
    rows: int
    owners: int  # number of the range of their owners; 0 for the unit's table
    dropped: Mapping[str, int]
    units: tuple[int, int]  # the least and the greatest


@dataclass(frozen=True)
class SampledTable:
    """What a sample step has left: its ``artifact``, whose rows are in one piece or in ranges."""

    artifact: Artifact

    @classmethod
    def listing(cls, ranges: Sequence[Listed], **facts: Any) -> Artifact:
        """Return the artifact of a step that has stored its rows range by range."""
        facts = {"rows": sum(part.rows for part in ranges), "ranges": len(ranges), **facts}
        listed = [part.to_dict() for part in ranges]
        return Artifact({"parts": listed, "summary": _summary(facts, _all_dropped(ranges))})

    @cached_property
    def listed(self) -> tuple[Listed, ...]:
        """The ranges that have files of their own; none where the table is in one piece."""
        return tuple(map(Listed.from_dict, self.artifact.data.get("parts", ())))

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of each range."""
        return tuple(part.rows for part in self.listed) or (_rows_of(self.artifact).num_rows,)

    @property
    def owners(self) -> tuple[int, ...]:
        """For each range the number of the range that holds all of its rows' owners."""
        return tuple(part.owners for part in self.listed) or (0,)

    @property
    def units(self) -> tuple[tuple[int, int], ...]:
        """The least and the greatest number of units in each range."""
        return tuple(part.units for part in self.listed) or (span_of(self.artifact.data["units"]),)

    def part(self, number: int | None) -> Sample:
        """Read one range, or all if None; raises as `PartFiles.get`. ``parents`` are rows of the owners' range."""
        return self.whole() if number is None else Sample.from_artifact(self._stored(number))

    def part_rows(self, number: int, columns: list[str] | None = None) -> pa.Table:
        """Read the rows of one range: some columns, or all if None."""
        if self.listed:
            return pq.read_table(pa.BufferReader(self.part_file(number)), columns=columns)
        rows = _rows_of(self.artifact)
        return rows if columns is None else rows.select(columns)

    def part_file(self, number: int) -> memoryview:
        """Read the rows of one range that has a file of its own, as a Parquet file; raises as `PartFiles.get`."""
        return self._parts.rows_file(number, self.listed[number].digest)

    def whole(self) -> Sample:
        """Read all ranges; those of tables that are drawn together."""
        return Sample.joined([self.part(number) for number in range(len(self.rows))])

    def of_units(self, units: NDArray[np.int64]) -> Sample:
        """Read the rows of some units, in order; their ``parents`` are left out."""
        wanted, numbers = np.unique(units), list[int]()
        for number, (least, most) in enumerate(self.units):
            first = int(np.searchsorted(wanted, least))
            if first < len(wanted) and wanted[first] <= most:
                numbers.append(number)
        parts = map(self.part, numbers or [0])
        return Sample.joined([part.some(np.isin(np.asarray(part.units), wanted)) for part in parts])

    def rows_between(self, least: int, most: int) -> int:
        """Return about how many rows have units with numbers from ``least`` to ``most``."""
        shares = (
            rows * max(0, min(b, most) - max(a, least) + 1) / (b - a + 1)
            for rows, (a, b) in zip(self.rows, self.units, strict=True)
            if rows
        )
        return math.ceil(sum(shares))

    def whole_rows(self, columns: list[str] | None = None) -> pa.Table:
        """Read the rows of all ranges: some columns, or all if None."""
        return _together([self.part_rows(number, columns) for number in range(len(self.rows))])

    def owners_along(self, key: ForeignKey, owners: Sequence[int], number: int | None = None) -> NDArray[np.int64]:
        """Return the owner of each row along an owner key, as a row number, -1 for none.

        Args:
            key: The key.
            owners: Rows of each range of the owners' table.
            number: Of a range of owners: its rows alone, and theirs alone among the children; None for all.
        """
        ends = np.append(0, np.cumsum(owners))
        found = []
        for part, above in enumerate(self.owners):
            if number is None or above == number or not self.listed:
                places = restored(self._stored(part).data["parents"])[key.name]
                found.append(np.where(places < 0, -1, places + ends[above]))
        whole: NDArray[np.int64] = np.concatenate(found) if found else np.zeros(0, dtype=np.int64)
        if number is None:
            return whole
        start, stop = (int(end) for end in ends[number : number + 2])
        return whole[(whole >= start) & (whole < stop)] - start

    def _stored(self, number: int) -> Artifact:
        return self._parts.get(number, self.listed[number].digest) if self.listed else self.artifact

    @property
    def _parts(self) -> PartFiles:
        if self.artifact.parts is None:
            raise InternalError("the ranges of a sample were not handed on with it")
        return self.artifact.parts


def span_of(units: NDArray[np.int64] | None) -> tuple[int, int]:
    """Return the least and the greatest number of units; none lies between those of no rows."""
    return (0, -1) if units is None or not len(units) else (int(units.min()), int(units.max()))


def _rows_of(stored: Artifact) -> pa.Table:
    if stored.table is None:
        raise InternalError("a sample was stored without its rows")
    return stored.table


def _together(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of some ranges; one of them may have NULL where there must be none."""
    return pa.concat_tables(parts, promote_options="default")


def _all_dropped(parts: Sequence[Sample | Listed]) -> dict[str, int]:
    return dict(sum((Counter(part.dropped) for part in parts), Counter[str]()))


def _summary(facts: Mapping[str, Any], dropped: Mapping[str, int]) -> dict[str, Any]:
    return {**facts, **({"rows dropped to keep constraints": dict(dropped)} if dropped else {})}
