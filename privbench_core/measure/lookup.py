"""Measuring keys off the ownership path: which row of another parent a row refers to, given its attributes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from privbench_core.columns.discretizer import Discretizer, ordered_codes
from privbench_core.columns.equal_width import equal_width_codec
from privbench_core.estimate.simplex import onto_simplex
from privbench_core.measure.pairwise import PairwiseFit
from privbench_core.measure.presence import present_or_not
from privbench_core.models.lookup import _ANY, _POSITION, _TARGET, Lookup, _none_from
from privbench_core.models.one_way import OneWay
from privbench_core.privacy.budget import Price
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import Feature, OfParent, Own, ParentRow, ViewSpec
from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.constraints import ForeignKey

_MAX_POSITIONS = 256
_MARGIN_SHARE = 0.3


def fit_lookup(
    session: PrivateSession,
    key: ForeignKey,
    child: tuple[Mapping[str, Discretizer], OneWay],
    parent: Mapping[str, Discretizer] | int,
    price: Price,
    fit: PairwiseFit,
) -> Lookup:
    """Measure the link along a key, for at most ``price``.

    Args:
        session: Open for the step.
        key: Not on the ownership path.
        child: Discretizers and released one-way counts of the child's attributes.
        parent: Discretizers of a private parent's attributes, or the number of rows of a public parent.
        price: Of everything here.
        fit: How joints are chosen and measured.
    """
    discretizers, one_way = child
    features: dict[str, tuple[Feature, Discretizer]] = {}
    if isinstance(parent, int):
        column = Column(_POSITION, ColumnType.INTEGER)
        codec = equal_width_codec(column, 0, max(parent - 1, 0), min(max(parent, 1), _MAX_POSITIONS))
        features[_POSITION] = (ParentRow(key), Discretizer(codec))
    elif parent:
        features = {f"{_TARGET}{name}": (OfParent(key, name), discretizer) for name, discretizer in parent.items()}
    elif key.optional:
        features[_ANY] = (ParentRow(key), present_or_not(_ANY))
    targets = {name: discretizer for name, (_, discretizer) in features.items()}
    if not features:
        return Lookup({}, {}, {}, by_position=False)
    own: dict[str, tuple[Feature, Discretizer]] = {
        name: (Own(name), discretizer) for name, discretizer in discretizers.items()
    }
    view = session.view(ViewSpec(key.child, {**features, **own}), "lookup")
    share = _MARGIN_SHARE if own else 1.0
    noisy = view.measure("targets", [Marginal((name,)) for name in features], price.share(share))
    total = one_way.total
    clean = {name: onto_simplex(counts, total) for name, counts in zip(features, noisy.values, strict=True)}
    if isinstance(parent, int) and not key.optional:
        rows = _none_from(targets[_POSITION])
        possible = onto_simplex(noisy.values[0][:rows], total)
        clean[_POSITION] = np.append(possible, np.zeros(len(clean[_POSITION]) - rows))
    candidates = [(target, column) for target in features for column in own]
    # Neighbours in a public table have nothing to do with each other: its positions are a list.
    ordered = ordered_codes(
        {**{name: discretizer for name, discretizer in targets.items() if name != _POSITION}, **discretizers}
    )
    counts = {**clean, **one_way.clean()}
    pair_tables = fit.fit_pairs(view, counts, candidates, price.share(1 - share), ordered) if own else {}
    marginals = {name: counts / total for name, counts in clean.items()}
    return Lookup(targets, marginals, pair_tables, by_position=isinstance(parent, int))
