"""Measure how often the parents along a key are referred to, over rows.

A unit has many references, and one noisy number per parent must bound them. Every row of a unit of s rows weighs
min(1/T, 1/s), so units of up to T rows count in full and larger ones as T rows, with a noise of T. Which T follows from
the released size of the table, by the error that it is expected to leave.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.estimate.popularity import rank_ends, rank_sums, row_counts
from privbench_core.estimate.segmentation import ABSOLUTE
from privbench_core.models.popularity import ByRank, ByRow
from privbench_core.models.row_count import RowCount
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Marginal, ParentCounts, RankSums
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.constraints import ForeignKey

Numbers = NDArray[np.int64]
_NOTHING = 1e-300
_RANKS_SHARE = 0.3  # of the price, where the parent is public: for the shape of all rows that noise hides
_GROUPS_SHARE = 0.2  # for groups of rows; single rows get the rest
_SHAPE_NUMBERS = 25  # numbers that a shape comes down to
_OTHERWISE = 0.3  # how far units with more than T rows refer to other parents
_MOST_PARENTS = 1 << 20  # ranks that are looked at
_MOST_GROUPS = 256  # groups of parents by rank; chosen by hand
_CLEAR = 4  # standard deviations of noise that a group of average popularity has


def rank_popularity(session: PrivateSession, key: ForeignKey, size: RowCount, present: float, price: Price) -> ByRank:
    """References to the most popular row of a private parent, the next, and so on, for at most ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Refers to a private table.
        size: Released, of the table that has the key.
        present: Released share of its rows that refer to some row.
        price: Of everything here.
    """
    view, scale = _counted(session, key, size, price, _SHAPE_NUMBERS)
    references = max(1.0, size.rows * present)
    ends = rank_ends(min(math.ceil(references), _MOST_PARENTS))
    noisy = view.measure("ranks", [RankSums(tuple(ends.tolist()))], price)
    return ByRank(ends, noisy.values[0] * scale, noisy.sigma * scale, references)


def row_popularity(
    session: PrivateSession, key: ForeignKey, size: RowCount, place: Numbers, price: Price
) -> tuple[ByRow, float]:
    """References to each row of a public parent, and to none, for at most ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 4, 7 and 9.

    Args:
        session: Open for the step.
        key: Refers to a public table.
        size: Released, of the table that has the key.
        place: Of each of its rows, at least one, in an order in which neighbours are likely to be as popular, see
            `order_of_alike`.
        price: Of everything here.
    """
    view, scale = _counted(session, key, size, price, len(place))
    parents, groups = len(place), min(len(place), _MOST_GROUPS)
    noise = view.sigma([Marginal(())], price.share(_GROUPS_SHARE)) * scale
    groups = max(1, min(groups, int(size.rows / (_CLEAR * noise))))
    group_of = place * groups // parents
    coarse = view.measure("groups of parents", [ParentCounts(group_of)], price.share(_GROUPS_SHARE))
    fine = view.measure("parents", [ParentCounts(np.arange(parents))], price.share(1 - _RANKS_SHARE - _GROUPS_SHARE))
    weight = fine.sigma**2 / (fine.sigma**2 + coarse.sigma**2)
    found = float(weight * coarse.values[0][-1] + (1 - weight) * fine.values[0][-1]) * scale
    none = references_to_none(found, np.sqrt(weight) * coarse.sigma * scale, size.rows)
    references = max(1.0, size.rows - none if key.optional else size.rows)
    ends = rank_ends(parents)
    noisy = view.measure("ranks", [RankSums(tuple(ends.tolist()))], price.share(_RANKS_SHARE))
    ranked = rank_sums(noisy.values[0] * scale, ends, noisy.sigma * scale, references, parents)
    sizes = np.diff(ends, prepend=0).astype(np.float64)
    counts = row_counts(
        fine.values[0][:-1] * scale,
        fine.sigma * scale,
        group_of,
        (coarse.values[0][:-1] * scale, coarse.sigma * scale),
        (ranked / sizes, sizes),
        references,
    )
    return ByRow(counts), none


def references_to_none(noisy: float, sigma: float, rows: float) -> float:
    """Return how many of ``rows`` refer to none: about half of them, as far as noise hides it, and never more than all.

    The mean under a normal prior; noisy numbers cut at zero and at all rows would leave either nobody or one parent.
    """
    half = rows / 2
    kept = half**2 / max(half**2 + sigma**2, _NOTHING)
    return float(np.clip(half + kept * (noisy - half), 0.0, rows))


def order_of_alike(parent: pa.Table, attributes: tuple[str, ...]) -> Numbers:
    """Place of each row of a public table in the order of its attributes, the roughest first, shape (rows,).

    Public rows say how they are to be grouped: those with the same attributes are likely to be as popular.
    """
    ranks = [np.unique(_texts(parent.column(name)), return_inverse=True)[1] for name in attributes]
    ranks.sort(key=lambda rank: -int(rank.max(initial=0)))
    places = np.empty(parent.num_rows, dtype=np.int64)
    places[np.lexsort([np.arange(parent.num_rows), *ranks])] = np.arange(parent.num_rows)
    return places


def _texts(values: pa.ChunkedArray) -> pd.Series:
    """Return a text per value of a public column: bytes need not be text, and NULL has a place as well."""
    column = values.to_pandas()
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        column = column.map(bytes.hex, na_action="ignore")
    return column.astype(str).fillna("nan")


def _counted(
    session: PrivateSession, key: ForeignKey, size: RowCount, price: Price, numbers: int
) -> tuple[Curator, float]:
    """The view in which units of up to T rows count in full, with the least expected error, and its scale.

    The scale is that of answers to references: a unit beyond T is taken to refer to parents as the others do.

    Args:
        session: Open for the step.
        key: Along which rows refer.
        size: Released, of the table that has the key.
        price: Of what is to be asked of the view.
        numbers: How many numbers tell parents apart.
    """
    views = [session.references(key, most, f"units of up to {most:,} rows") for most in size.classes]
    # Shares, as a table of units has no numbers by class.
    whole = max(float(size.rows_of.sum()), _NOTHING)
    shares = np.array([float(size.counted(most).sum()) / whole for most in size.classes])
    counted = np.maximum(1.0, size.rows * shares)
    noise = np.array([view.sigma([Marginal(())], price) for view in views]) * size.classes
    lost = 1 - counted / max(size.rows, float(counted.max()))
    # No number is off by more than itself, as those that noise hides are not kept: as under Zipf's law.
    ranks = np.arange(1, numbers + 1)
    likely = 1 / (ranks * (1 / ranks).sum())
    off = np.array([np.minimum(ABSOLUTE * share, likely).sum() for share in noise / counted])
    best = int(np.argmin(_OTHERWISE * lost + off))
    return views[best], float(size.classes[best] * max(size.rows, counted[best]) / counted[best])
