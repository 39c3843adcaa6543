"""Places of children in their group: by which of their columns members differ most, so that it tells their roles apart.

Children that follow their group's type alone are drawn independently of each other: two heads of a household, or none.
Where members stand in an order by one of their columns, each place has its own distribution, and a group has each place
once. Which column that is follows from one look at all of them: the dependence of a column on the place, beyond what
independent members would show when put in order.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.group_codes import index_coder, place_count, sizes_and_ranks
from privbench_core.estimate.segmentation import SIGNIFICANT
from privbench_core.guards import MAX_PLACES, TINY
from privbench_core.models.fanout import PLACE, Fanout
from privbench_core.models.profile import Profile
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Feature, MemberPlace, Own
from privbench_core.privacy.queries import Distances
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.constraints import ForeignKey

Array = NDArray[np.float64]


def place_coder(most: int) -> Discretizer:
    """A discretizer with a code for each place, in order."""
    return index_coder(PLACE, place_count(most))


def best_places(
    session: PrivateSession, key: ForeignKey, child: Profile, fanout: Fanout, owners: float, price: Price
) -> MemberPlace | None:
    """The order of members that tells most, or None if noise may have made it; for ``price``.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 2 and 4.

    Args:
        session: Open for the step.
        key: The owner key.
        child: The children.
        fanout: Released sizes of groups.
        owners: Number of owners.
        price: Of the look.
    """
    most = min(key.max_children or 1, MAX_PLACES)
    clean = {name: counts for name, counts in child.one_way.clean().items() if len(counts) > 1}
    clean = {name: counts for name, counts in clean.items() if name in child.discretizers}
    held = _held(fanout, owners, most)
    if most < 2 or not clean or held[1:].sum() <= 0:  # noqa: PLR2004 - who is alone has one place
        return None
    orders = {name: _order(counts, child.discretizers[name], owners) for name, counts in clean.items()}
    places = {name: MemberPlace(key, name, child.discretizers[name], order, most) for name, order in orders.items()}
    coder = place_coder(most)
    features: dict[str, tuple[Feature, Discretizer]] = {}
    for name, place in places.items():
        features[name], features[f"{PLACE} {name}"] = (Own(name), child.discretizers[name]), (place, coder)
    view = session.view(ViewSpec(key.child, features, (child.size.rows_per_unit,)), "places")
    total = child.one_way.total
    rows = held[sizes_and_ranks(most)[0] - 1]
    rows = rows / max(float(rows.sum()), TINY)
    groups = tuple(((((f"{PLACE} {name}", name), np.outer(rows, counts)),)) for name, counts in clean.items())
    noisy = view.measure("place scores", [Distances(groups)], price)
    expected = [_by_chance(clean[name], orders[name], rows, most) * total for name in clean]
    scores = noisy.values[0] - expected
    best = int(np.argmax(scores))
    return places[list(clean)[best]] if scores[best] > SIGNIFICANT * noisy.sigma else None


def expected_places(fanout: Fanout, owners: float, most: int, largest: float) -> Array:
    """Return the shares of the children that have each place, as released sizes of groups tell them; shape (codes,).

    Of a group that is larger than ``most`` all further members have the last place; no more than ``largest`` count.
    """
    held, (size, rank) = _held(fanout, owners, most), sizes_and_ranks(most)
    rows = held[size - 1]
    codec, (code_of, shares) = fanout.sizes.codec, fanout.sizes.shares
    assert isinstance(codec, FanoutCodec)  # noqa: S101 - numbers of children have a codec of their own
    beyond = np.maximum(codec.means(largest) - most, 0.0)
    rows[(size == most) & (rank == most - 1)] += float((owners * fanout.counts[code_of] * shares) @ beyond)
    return np.asarray(rows / max(float(rows.sum()), TINY))


def _held(fanout: Fanout, owners: float, most: int) -> Array:
    """Number of groups of 1, 2, … children, those of more than ``most`` as so many, shape (most,)."""
    codec = fanout.sizes.codec
    assert isinstance(codec, FanoutCodec)  # noqa: S101 - numbers of children have a codec of their own
    code_of, shares = fanout.sizes.shares
    groups = owners * fanout.counts[code_of] * shares
    size = np.minimum(codec.starts, most)
    held = np.bincount(size, groups, most + 1).astype(np.float64)
    held[1] += fanout.ownerless
    return np.asarray(held[1:])


def _order(counts: Array, discretizer: Discretizer, owners: float) -> NDArray[np.int64]:
    """Places of the codes: intervals in order; of a list, first what occurs about once in each group."""
    intervals, size = discretizer.ordered, len(counts)
    order = np.arange(size, dtype=np.int64)
    values = np.argsort(np.abs(counts[intervals:] - owners), kind="stable")
    order[intervals + values] = intervals + np.arange(size - intervals)
    return order


def _by_chance(counts: Array, order: NDArray[np.int64], rows: Array, most: int) -> float:
    """The distance that independent members would have, as a share of all rows: order statistics of each size."""
    shares = (counts / counts.sum())[np.argsort(order)]
    below = np.append(0.0, np.cumsum(shares))
    sizes, ranks = sizes_and_ranks(most)
    reached = scipy.stats.binom.sf(ranks[:, None], sizes[:, None], np.clip(below, 0.0, 1.0))
    return float(rows @ np.abs(np.diff(reached, axis=1) - shares).sum(axis=1))
