"""Profile steps: learned domains, released one-way marginals, and the coders that everything later speaks in.

A column with a declared domain costs nothing but its share of the one-way marginals. A learned range is found on a
public grid (signed powers of two, or calendar years); a learned list of values by a stability threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.codec import Codec
from privbench_core.domain.codecs import codec_for
from privbench_core.domain.coder import Coder
from privbench_core.domain.intervals import interval_codec
from privbench_core.domain.lists import list_codec
from privbench_core.domain.magnitude import LearnedMagnitude
from privbench_core.models.one_way import OneWay, count_again, least_noise
from privbench_core.models.pairwise import MOST_CODES, highest_noise
from privbench_core.privacy.budget import Price
from privbench_core.privacy.door import Door
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.relations import deciding_tables, stability
from privbench_core.privacy.views import Own, ViewSpec
from privbench_core.schema.identity import column_identity, key_identity
from privbench_core.schema.model.columns import Column, Learn
from privbench_core.schema.model.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Step, StepContext, StepKind
from privbench_core.synthesizers.stages.refine import Look, look_closer, share_of

Array = NDArray[np.float64]
_LEARN_SHARE = 0.3  # of a profile's price, for learning domains, where there are any to learn
_BARS = 24


@dataclass(frozen=True)
class Profile:
    """Released: how a table's attributes are coded, and how often each code occurs.

    Attributes:
        coders: Column -> coder.
        one_way: Noisy counts of the codes; for an owned table, of units (rows weigh 1/group size).
        total: Noisy number of rows (weighted likewise).
    """

    coders: Mapping[str, Coder]
    one_way: OneWay
    total: float

    def to_dict(self) -> dict[str, Any]:
        """A description that `Artifact` can store."""
        return {
            "coders": [[name, coder.to_dict()] for name, coder in self.coders.items()],
            "counts": [[name, counts] for name, counts in self.one_way.counts.items()],
            "sigmas": [[name, sigmas] for name, sigmas in self.one_way.sigmas.items()],
            "total": self.total,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Profile:
        """The inverse of `to_dict`."""
        coders = {name: Coder.from_dict(coder) for name, coder in stored["coders"]}
        one_way = OneWay(dict(stored["counts"]), dict(stored["sigmas"]), stored["total"])
        return cls(coders, one_way, stored["total"])


def profile_step(schema: Schema, table: Table, price: Price) -> Step:
    """The step that profiles a private table for ``price``, and nothing more."""

    def run(context: StepContext) -> Artifact:
        cells = profile_table(context.opened(), table, price)
        profile = cells.profile()
        return Artifact({"profile": profile.to_dict(), "summary": summary_of(table, profile, cells)})

    return measured_step(schema, table, price, run, {})


def measured_step(
    schema: Schema, table: Table, price: Price, run: Callable[[StepContext], Artifact], parameters: Mapping[str, Any]
) -> Step:
    """The step that opens the door to a private table first.

    Args:
        schema: The database.
        table: The table.
        price: Of the step.
        run: The work: a profile, and what else there is to be measured.
        parameters: What it depends on beside the table and the rows, JSON-able.
    """
    for column in table.attributes:
        if not isinstance(column.domain, Learn):
            codec_for(column, table=table.name)  # a domain that cannot be coded is refused before anything is spent
    reads = deciding_tables(schema, table.name)
    own = {
        "columns": [column_identity(column) for column in table.attributes],
        "primary key": list(table.primary_key),
        "unique": [list(columns) for columns in table.unique],
        # All bounds on these tables decide which rows are kept and how much each may count.
        "keys": [[key_identity(key) for key in schema.table(name).foreign_keys] for name in reads],
        "stability": stability(schema, table.name),
    }
    key = ("profile", table.name)
    return Step(key, StepKind.PROFILE, table.name, (), reads, price, run, {**own, **parameters}, version="4")


@dataclass(frozen=True)
class Cells:
    """What has been released about the cells of a table's columns, before they are merged into codes.

    Attributes:
        codecs: Column -> codec of the first look, for all attributes.
        first: Column -> noisy counts of the first look, where there is more than one cell.
        looks: Column -> all that is known about its cells since, likewise.
        sigmas: Column -> standard deviation of the noise of the first look on each count, likewise.
        rows: Noisy number of rows and its standard deviation, where there are no columns to add up.
    """

    codecs: Mapping[str, Codec]
    first: Mapping[str, Array]
    looks: Mapping[str, Look]
    sigmas: Mapping[str, float]
    rows: tuple[float, float]

    def profile(self) -> Profile:
        """The cells merged into codes."""
        binnings = {name: look.merged(MOST_CODES) for name, look in self.looks.items()}
        counts = {name: binnings[name].sums(look.counts) for name, look in self.looks.items()}
        sigmas = {name: np.sqrt(binnings[name].sums(look.variances)) for name, look in self.looks.items()}
        told = OneWay(counts, sigmas)
        total, sigma = (told.total, told.total_sigma) if counts else self.rows
        total = max(1.0, total)
        # A column of one cell (made anew, never NULL) says nothing: it is coded, so that it is drawn, but not measured.
        coders = {
            name: Coder(self.looks[name].codec, binnings[name]) if name in binnings else Coder(codec)
            for name, codec in self.codecs.items()
        }
        one_way = OneWay(
            {name: counts.get(name, np.array([total])) for name in self.codecs},
            {name: sigmas.get(name, np.array([sigma])) for name in self.codecs},
            total,
        )
        return Profile(coders, one_way, total)

    def again(self, door: Door, table: Table, price: Price) -> Cells:
        """The same cells counted once more where that leaves the least noise, for ``price``, and averaged."""
        if not self.looks:
            return self
        counts = {name: look.counts for name, look in self.looks.items()}
        sigmas = {name: np.sqrt(look.variances) for name, look in self.looks.items()}
        features = {name: (Own(name), Coder(look.codec)) for name, look in self.looks.items()}
        view = door.view(ViewSpec(table.name, dict(features)), "second look")
        better = count_again(view, OneWay(counts, sigmas), price)
        looks = {
            name: replace(look, counts=better.counts[name], variances=better.sigmas[name] ** 2)
            for name, look in self.looks.items()
        }
        return replace(self, looks=looks)


def profile_table(door: Door, table: Table, price: Price) -> Cells:
    """All that a profile measures, for ``price``.

    Raises:
        UnsupportedBudgetError: A list of values is to be learned without a δ.
    """
    codecs, rest = learned_codecs(door, table, price)
    return first_look(door, table, codecs, rest)


def learned_codecs(door: Door, table: Table, price: Price) -> tuple[dict[str, Codec], Price]:
    """The codec of every attribute, and what learning domains has left of the price.

    Raises:
        UnsupportedBudgetError: A list of values is to be learned without a δ.
    """
    learned = [column for column in table.attributes if isinstance(column.domain, Learn)]
    rest = Price(price.measure, price.amount)
    found: dict[str, Codec] = {}
    if learned:
        each = price.share(_LEARN_SHARE / len(learned)).with_delta(price.delta / max(1, len(lists_to_learn(table))))
        found = {column.name: _learn(door, table, column, each) for column in learned}
        rest = price.share(1 - _LEARN_SHARE)
    return {c.name: found.get(c.name) or codec_for(c, table=table.name) for c in table.attributes}, rest


def first_look(door: Door, table: Table, codecs: Mapping[str, Codec], price: Price) -> Cells:
    """All cells counted for ``price``, heavy ones more closely."""
    telling = {name: codec for name, codec in codecs.items() if codec.size > 1}
    view = door.view(ViewSpec(table.name, {name: (Own(name), Coder(codec)) for name, codec in telling.items()}))
    if not telling:
        rows = view.measure("rows", [Marginal(())], price)
        return Cells(codecs, {}, {}, {}, (float(rows.values[0]), rows.sigma))
    closer = share_of(table, telling)
    first = price.share(1 - closer)
    shares = least_noise({name: min(codec.size, MOST_CODES) for name, codec in telling.items()}, price.measure)
    found: dict[str, Array] = {}
    sigmas: dict[str, float] = {}
    for share in sorted(set(shares.values())):
        alike = [name for name in telling if shares[name] == share]
        noisy = view.measure("one-way", [Marginal((name,)) for name in alike], first.share(share * len(alike)))
        found |= zip(alike, noisy.values, strict=True)
        sigmas |= dict.fromkeys(alike, noisy.sigma)
    looks = {name: Look.first(codec, found[name], sigmas[name]) for name, codec in telling.items()}
    looks = look_closer(door, table, looks, price.share(closer)) if closer else looks
    return Cells(codecs, found, looks, sigmas, (0.0, 0.0))


def lists_to_learn(table: Table) -> list[Column]:
    """Columns whose list of values is to be learned, which takes a δ."""
    return [c for c in table.attributes if isinstance(c.domain, Learn) and not c.type.ordered]


def _learn(door: Door, table: Table, column: Column, price: Price) -> Codec:
    """A codec for a column without a declared domain, for ``price``."""
    if not column.type.ordered:
        found = door.discover(table.name, column.name, price)
        values = sorted(found.counts, key=lambda v: -found.counts[v]) or ["(none common enough to name)"]
        return list_codec(column, tuple(values), table=table.name)
    grid = LearnedMagnitude.of(column, table=table.name)
    view = door.view(ViewSpec(table.name, {column.name: (Own(column.name), Coder(grid))}), f"range of {column.name}")
    noisy = view.measure("grid", [Marginal((column.name,))], Price(price.measure, price.amount))
    counts = noisy.values[0][: grid.ordered]
    seen = np.flatnonzero(counts > highest_noise(price.measure, noisy.sigma, len(counts)))
    cells = seen if len(seen) else np.array([int(np.argmax(counts))])
    return interval_codec(column, grid.edges(int(cells[0]))[0], grid.edges(int(cells[-1]))[1], table=table.name)


def summary_of(table: Table, profile: Profile, cells: Cells) -> dict[str, Any]:
    """Released facts for people: sizes, clamped values, histograms."""
    bars, clamped = {}, {}
    for name, counts in cells.first.items():
        codec = cells.codecs[name]
        outside = float(sum(counts[cell] for cell in codec.outside))
        if codec.outside and outside > 3 * cells.sigmas[name] * np.sqrt(len(codec.outside)):
            clamped[f"{table.name}.{name}"] = round(outside)
        bars[name] = _bars(codec, counts)
    summary: dict[str, Any] = {
        "rows (noisy, weighted by unit)": round(profile.total),
        "noise per count (σ, largest)": round(max(cells.sigmas.values(), default=cells.rows[1]), 3),
        "codes": sum(coder.size for coder in profile.coders.values()),
        "bars": bars,
    }
    if clamped:
        summary["values outside of the declared domain, clamped (noisy counts)"] = clamped
    return summary


def _bars(codec: Codec, counts: Array) -> dict[str, list[Any]]:
    """At most `_BARS` bars of a column's released histogram."""
    labels = codec.labels()
    shown = np.maximum(counts, 0)
    if codec.ordered > _BARS:
        edges = np.linspace(0, codec.ordered, _BARS + 1).astype(int)
        grouped = [float(shown[a:b].sum()) for a, b in pairwise(edges)]
        return {"labels": [labels[a] for a in edges[:-1]], "counts": [round(v) for v in grouped]}
    largest = np.sort(np.argsort(-shown)[:_BARS])
    return {"labels": [labels[i] for i in largest], "counts": [round(float(shown[i])) for i in largest]}
