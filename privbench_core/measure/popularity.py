"""Measure how often the parents along a key are referred to, over rows.

A unit has many references, and one noisy number per parent must bound them. Every row of a unit of s rows weighs
min(1/T, 1/s), so units of up to T rows count in full and larger ones as T rows, with a noise of T. Which T is chosen
from noisy totals, by the error that it is expected to leave.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.estimate.popularity import rank_ends, rank_sums, row_counts
from privbench_core.models.popularity import ByRank, ByRow
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal, ParentCounts, RankSums
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.constraints import ForeignKey

Numbers = NDArray[np.int64]
_TOTALS_SHARE = 0.1  # of the price, where there is a T to choose
_RANKS_SHARE = 0.3  # of what is left, where the parent is public: for the shape of all rows that noise hides
_GROUPS_SHARE = 0.2  # for groups of rows; single rows get the rest
_STEP = 4  # between the T that are tried
_TOLD = 25  # numbers that a shape comes down to: what their noise adds up to is weighed against the rows left out
_MOST_PARENTS = 1 << 20  # ranks that are looked at
_ALL = 1 << 40  # ranks: more than there can be
_MOST_GROUPS = 256
_CLEAR = 4  # standard deviations of noise that a group of average popularity has


def rank_popularity(session: PrivateSession, key: ForeignKey, most: int, least: float, price: Price) -> ByRank:
    """References to the most popular row of a private parent, the next, and so on, for at most ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Refers to a private table.
        most: Bound on the rows of one unit.
        least: Released number of rows that there are at least, where noise hides them.
        price: Of everything here.
    """
    view, scale, references, price = _counted(session, key, most, least, price)
    ends = rank_ends(min(math.ceil(references), _MOST_PARENTS))
    noisy = view.measure("ranks", [RankSums(tuple(ends.tolist()))], price)
    return ByRank(ends, noisy.values[0] * scale, noisy.sigma * scale, references)


def row_popularity(
    session: PrivateSession, key: ForeignKey, most: int, least: float, place: Numbers, price: Price
) -> tuple[ByRow, float]:
    """References to each row of a public parent, and to none, for at most ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Refers to a public table.
        most: Bound on the rows of one unit.
        least: Released number of rows that there are at least, where noise hides them.
        place: Of each of its rows in an order in which neighbours are likely to be as popular, see `order_of_alike`.
        price: Of everything here.
    """
    view, scale, references, price = _counted(session, key, most, least, price)
    parents, groups = len(place), min(len(place), _MOST_GROUPS)
    noise = view.sigma([Marginal(())], price.share(_GROUPS_SHARE)) * scale
    groups = max(1, min(groups, int(references / (_CLEAR * noise))))
    group_of = place * groups // max(parents, 1)
    coarse = view.measure("groups of parents", [ParentCounts(group_of)], price.share(_GROUPS_SHARE))
    fine = view.measure("parents", [ParentCounts(np.arange(parents))], price.share(1 - _RANKS_SHARE - _GROUPS_SHARE))
    weight = fine.sigma**2 / (fine.sigma**2 + coarse.sigma**2)
    none = max(0.0, float(weight * coarse.values[0][-1] + (1 - weight) * fine.values[0][-1]) * scale)
    references = max(references, least - none)
    ends = rank_ends(max(parents, 1))
    noisy = view.measure("ranks", [RankSums(tuple(ends.tolist()))], price.share(_RANKS_SHARE))
    ranked = rank_sums(noisy.values[0] * scale, ends, noisy.sigma * scale, references, parents)
    sizes = np.diff(ends, prepend=0).astype(np.float64)
    counts = row_counts(
        fine.values[0][:-1] * scale,
        fine.sigma * scale,
        group_of,
        (coarse.values[0][:-1] * scale, coarse.sigma * scale),
        (ranked / sizes, sizes),
    )
    return ByRow(counts), none


def order_of_alike(parent: pa.Table, attributes: tuple[str, ...]) -> Numbers:
    """Place of each row of a public table in the order of its attributes, the roughest first, shape (rows,).

    Public rows say how they are to be grouped: those with the same attributes are likely to be as popular.
    """
    ranks = [np.unique(parent.column(name).to_pandas().astype(str), return_inverse=True)[1] for name in attributes]
    ranks.sort(key=lambda rank: -int(rank.max(initial=0)))
    places = np.empty(parent.num_rows, dtype=np.int64)
    places[np.lexsort([np.arange(parent.num_rows), *ranks])] = np.arange(parent.num_rows)
    return places


def _counted(
    session: PrivateSession, key: ForeignKey, most: int, least: float, price: Price
) -> tuple[Curator, float, float, Price]:
    """The view in which units of up to T rows count in full, its scale, the number of references, and what is left.

    What is left is of the price. The scale is that of answers to references: a unit beyond T is taken to refer to
    parents as the others do.
    """
    tried = [1]
    while tried[-1] < most:
        tried.append(min(most, tried[-1] * _STEP))
    views = [session.references(key, rows, f"units of up to {rows:,} rows") for rows in tried]
    each = price.share(_TOTALS_SHARE / len(tried))
    found = [view.measure("references", [RankSums((_ALL,))], each) for view in views]
    rows = np.array(tried, dtype=np.float64)
    totals = np.array([float(answer.values[0][0]) for answer in found]) * rows
    spread = np.array([answer.sigma for answer in found]) * rows
    # A sum over larger units is mostly noise.
    there = max(float((totals - spread).max()), 1.0 if key.optional else least)
    price = price.share(1 - _TOTALS_SHARE)
    noise = np.array([view.sigma([Marginal(())], price) for view in views]) * rows
    lost = np.maximum(there - totals, 0.0)
    best = int(np.argmin(0.5 * lost + math.sqrt(2 / math.pi) / 2 * _TOLD * noise))
    scale = rows[best] * min(max(there / max(float(totals[best]), 1.0), 1.0), most / rows[best])
    return views[best], float(scale), there, price
