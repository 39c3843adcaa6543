"""Profile steps: learned domains, released one-way marginals, and the coders that everything later speaks in.

A column with a declared domain costs nothing but its share of the one-way marginals. A learned range is found on a
public grid (signed powers of two, or calendar years); a learned list of values by a stability threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.codec import Codec
from privbench_core.domain.codecs import LearnedMagnitude, codec_for, interval_codec, list_codec
from privbench_core.domain.coder import Coder
from privbench_core.models.pairwise import OneWay, highest_noise
from privbench_core.privacy.budget import Price
from privbench_core.privacy.door import Door
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.relations import deciding_tables, stability
from privbench_core.privacy.views import Own, ViewSpec
from privbench_core.schema.model.columns import Column, Learn
from privbench_core.schema.model.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Step, StepContext, StepKind
from privbench_core.synthesizers.stages.refine import Look, look_closer, share_of

Array = NDArray[np.float64]
_LEARN_SHARE = 0.3  # of a profile's price, for learning domains, where there are any to learn
_MAX_CODES = 100
_BARS = 24


@dataclass(frozen=True)
class Profile:
    """Released: how a table's attributes are coded, and how often each code occurs.

    Attributes:
        coders: Column -> coder.
        one_way: Noisy counts of the codes; for an owned table, of units (rows weigh 1/group size).
        total: Noisy number of rows (weighted likewise).
        sigma: Standard deviation of the noise on a cell; codes of several cells have more.
    """

    coders: Mapping[str, Coder]
    one_way: OneWay
    total: float
    sigma: float

    def to_dict(self) -> dict[str, Any]:
        """A description that `Artifact` can store."""
        return {
            "coders": [[name, coder.to_dict()] for name, coder in self.coders.items()],
            "counts": [[name, counts] for name, counts in self.one_way.counts.items()],
            "sigmas": [[name, sigmas] for name, sigmas in self.one_way.sigmas.items()],
            "sigma": self.sigma,
            "total": self.total,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Profile:
        """The inverse of `to_dict`."""
        coders = {name: Coder.from_dict(coder) for name, coder in stored["coders"]}
        one_way = OneWay(dict(stored["counts"]), dict(stored["sigmas"]), stored["total"])
        return cls(coders, one_way, stored["total"], stored["sigma"])


def profile_step(schema: Schema, table: Table, price: Price) -> Step:
    """The step that profiles a private table for ``price``."""
    for column in table.attributes:
        if not isinstance(column.domain, Learn):
            codec_for(column, table=table.name)  # a domain that cannot be coded is refused before anything is spent
    reads = deciding_tables(schema, table.name)
    parameters = {
        "columns": repr(table.attributes),
        "primary key": table.primary_key,
        "unique": table.unique,
        # All bounds on these tables decide which rows are kept and how much each may count.
        "keys": repr([schema.table(name).foreign_keys for name in reads]),
        "stability": stability(schema, table.name),
    }

    def run(context: StepContext) -> Artifact:
        profile, cells = profile_table(context.opened(), table, price)
        return Artifact({"profile": profile.to_dict(), "summary": _summary(table, profile, cells)})

    return Step(("profile", table.name), StepKind.PROFILE, table.name, (), reads, price, run, parameters, version="2")


def profile_table(door: Door, table: Table, price: Price) -> tuple[Profile, dict[str, tuple[Codec, Array]]]:
    """The profile, and the noisy counts of each column's cells before they were merged.

    Raises:
        UnsupportedBudgetError: A list of values is to be learned without a δ.
    """
    learned = [column for column in table.attributes if isinstance(column.domain, Learn)]
    rest = Price(price.measure, price.amount)
    if learned:
        each = price.share(_LEARN_SHARE / len(learned)).with_delta(price.delta / max(1, len(lists_to_learn(table))))
        codecs = {column.name: _learn(door, table, column, each) for column in learned}
        rest = price.share(1 - _LEARN_SHARE)
    else:
        codecs = {}
    codecs = {c.name: codecs.get(c.name) or codec_for(c, table=table.name) for c in table.attributes}
    telling = {name: codec for name, codec in codecs.items() if codec.size > 1}
    view = door.view(ViewSpec(table.name, {name: (Own(name), Coder(codec)) for name, codec in telling.items()}))
    asked = [Marginal((name,)) for name in telling] or [Marginal(())]
    closer = share_of(table, telling)
    noisy = view.measure("one-way" if telling else "rows", asked, rest.share(1 - closer))
    found = dict(zip(telling, noisy.values, strict=False))
    looks = {name: Look.first(codec, found[name], noisy.sigma) for name, codec in telling.items()}
    looks = look_closer(door, table, looks, rest.share(closer)) if closer else looks
    binnings = {name: look.merged(_MAX_CODES) for name, look in looks.items()}
    counts = {name: binnings[name].sums(look.counts) for name, look in looks.items()}
    sigmas = {name: np.sqrt(binnings[name].sums(look.variances)) for name, look in looks.items()}
    total = OneWay(counts, sigmas).total if telling else max(1.0, float(noisy.values[0]))
    # A column of one cell (made anew, never NULL) says nothing: it is coded, so that it is drawn, but not measured.
    coders = {n: Coder(looks[n].codec, binnings[n]) if n in looks else Coder(codec) for n, codec in codecs.items()}
    one_way = OneWay(
        {name: counts.get(name, np.array([total])) for name in codecs},
        {name: sigmas.get(name, np.array([noisy.sigma])) for name in codecs},
        total,
    )
    return Profile(coders, one_way, total, noisy.sigma), {name: (codec, found[name]) for name, codec in telling.items()}


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


def _summary(table: Table, profile: Profile, cells: Mapping[str, tuple[Codec, Array]]) -> dict[str, Any]:
    """Released facts for people: sizes, clamped values, histograms."""
    bars, clamped = {}, {}
    sigma = profile.sigma
    for name, (codec, counts) in cells.items():
        outside = float(sum(counts[cell] for cell in codec.outside))
        if codec.outside and outside > 3 * sigma * np.sqrt(len(codec.outside)):
            clamped[f"{table.name}.{name}"] = round(outside)
        bars[name] = _bars(codec, counts)
    summary: dict[str, Any] = {
        "rows (noisy, weighted by unit)": round(profile.total),
        "noise per count (σ)": round(sigma, 3),
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
