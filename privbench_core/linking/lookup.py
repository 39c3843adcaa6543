"""Keys that are not on the ownership path: which row of another parent a row refers to, given its attributes.

A *public* parent is referred to by position: references per row are released, and the joint of (position, attribute of
the row) where it pays. A *private* parent is referred to by its attributes: joints of (attribute of the parent,
attribute of the row) are released, a row draws the attributes its parent should have, and then one of the synthetic
parents that have them. Of a private parent without attributes only whether a row refers to one is released, where the
key may be NULL. Among the parents that a row may refer to, some are more popular than others (`models.popularity`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.codec import Codes
from privbench_core.domain.coder import Coder, ordered_codes
from privbench_core.domain.intervals import interval_codec
from privbench_core.domain.simplex import onto_simplex
from privbench_core.linking.choice import Choice, Level, pick_parents
from privbench_core.linking.presence import present_or_not
from privbench_core.measure.popularity import rank_popularity, row_popularity
from privbench_core.models.conditional import Tie, draw_column
from privbench_core.models.estimate import mutual_information
from privbench_core.models.one_way import OneWay
from privbench_core.models.pairwise import PairwiseFit
from privbench_core.models.popularity import ByRow, Popularity, popularity_from_dict
from privbench_core.models.rows import Rows
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.door import Door
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.views import Feature, OfParent, Own, ParentRow, ViewSpec
from privbench_core.schema.identity import Identity
from privbench_core.schema.model.columns import Column, ColumnType
from privbench_core.schema.model.constraints import ForeignKey

Array = NDArray[np.float64]
_TARGET = "target."
_POSITION = "target.#row"
_ANY = "target.#any"  # code 0: refers to some row, 1: to none
_MAX_POSITIONS = 256
_MAX_TARGETS = 3


@dataclass(frozen=True)
class LookupFit:
    """How a lookup step spends its price; public constants.

    Attributes:
        popularity_share: Part of the price for how often parents are referred to.
        margin_share: Part of the rest for one-way marginals, where there are columns of the child to tie them to.
        pairs: How joints are chosen and measured.
    """

    popularity_share: float = 0.25
    margin_share: float = 0.3
    pairs: PairwiseFit = field(default_factory=PairwiseFit)

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {
            "popularity_share": self.popularity_share,
            "margin_share": self.margin_share,
            "pairs": self.pairs.identity(),
        }


@dataclass(frozen=True)
class Lookup:
    """Released: the link along one key that is not on the ownership path.

    Attributes:
        targets: Column of the target ("target.<column>" or its position) -> coder.
        marginals: The same -> probabilities; one more code than the coder has, the last, means "refers to none".
        ties: (target column, child's column) -> joint.
        popularity: How often parents are referred to, None where a row can refer to one alone.
    """

    targets: Mapping[str, Coder]
    marginals: Mapping[str, Array]
    ties: Mapping[tuple[str, str], Array]
    popularity: Popularity | None = None

    def to_dict(self) -> dict[str, Any]:
        """A description that `Artifact` can store."""
        return {
            "targets": [[name, coder.to_dict()] for name, coder in self.targets.items()],
            "marginals": [[name, p] for name, p in self.marginals.items()],
            "ties": [[target, column, joint] for (target, column), joint in self.ties.items()],
            "popularity": None if self.popularity is None else self.popularity.to_dict(),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Lookup:
        """The inverse of `to_dict`."""
        targets = {name: Coder.from_dict(coder) for name, coder in stored["targets"]}
        ties = {(target, column): joint for target, column, joint in stored["ties"]}
        popularity = stored["popularity"]
        return cls(
            targets, dict(stored["marginals"]), ties, None if popularity is None else popularity_from_dict(popularity)
        )

    def at_scale(self, scale: float) -> Lookup:
        """The link where there are so many synthetic parents per parent."""
        return self if self.popularity is None else replace(self, popularity=self.popularity.at_scale(scale))

    def draw(
        self,
        rows: Rows,
        parents: Mapping[str, Codes],
        count: int,
        rng: np.random.Generator,
        choice: Choice | None = None,
        drawn: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """The row number of each row's parent, -1 for none; shape (n,).

        Args:
            rows: Rows with their own attributes drawn.
            parents: Codes of the synthetic parents' attributes, by column name; {} for a public parent.
            count: Number of parent rows.
            rng: Sampling only.
            choice: Which parents each row may refer to; None for any.
            drawn: Parents of rows that were drawn before, -1 for none: these are drawn in their place, so that parents
                stay as popular; None in the first place.
        """
        if count == 0:
            return np.full(rows.n, -1, dtype=np.int64)
        wanting, wishes = np.ones(rows.n, dtype=bool), list[Level]()
        if isinstance(self.popularity, ByRow):
            codes = self._draw_target(_POSITION, rows, rng)
            coder = self.targets[_POSITION]
            wanting = codes < _none_from(coder)
            wishes = [(coder.encode_numbers(np.arange(count)).astype(np.int64), codes.astype(np.int64))]
        elif _ANY in self.targets:
            wanting = self._draw_target(_ANY, rows, rng) == 0
        elif self.targets:
            wanting, wishes = self._wishes(rows, parents, rng)
        choice = replace(
            choice or Choice.free(rows.n, count), weights=self._weights(wishes, wanting, count, drawn, rng)
        )
        return pick_parents(wishes, wanting, choice, rng)

    def _weights(
        self,
        wishes: list[Level],
        wanting: NDArray[np.bool_],
        count: int,
        drawn: NDArray[np.int64] | None,
        rng: np.random.Generator,
    ) -> Array:
        """How often each parent is to be referred to, relative to the others, shape (parents,)."""
        if drawn is not None:
            return np.bincount(drawn[drawn >= 0], minlength=count).astype(np.float64)
        if self.popularity is None:
            return np.ones(count)
        have, want = wishes[-1] if wishes else (np.zeros(count, dtype=np.int64), np.zeros(len(wanting), dtype=np.int64))
        return self.popularity.weights(have, want[wanting], rng)

    def _wishes(
        self, rows: Rows, parents: Mapping[str, Codes], rng: np.random.Generator
    ) -> tuple[NDArray[np.bool_], list[Level]]:
        """Whether each row refers to a parent at all, and which of its attributes tell most, as drawn for each row."""
        information = {
            name: sum(mutual_information(j) for (t, _), j in self.ties.items() if t == name) for name in self.targets
        }
        wanted = sorted((n for n in self.targets if information[n] > 0), key=lambda n: -information[n])[:_MAX_TARGETS]
        first = wanted[0] if wanted else next(iter(self.targets))
        drawn = {name: self._draw_target(name, rows, rng) for name in wanted or [first]}
        wishes = []
        for depth in range(1, len(wanted) + 1):
            shape = [self.targets[name].size + 1 for name in wanted[:depth]]
            have = np.ravel_multi_index([parents[name.removeprefix(_TARGET)] for name in wanted[:depth]], shape)
            want = np.ravel_multi_index([drawn[name] for name in wanted[:depth]], shape)
            wishes.append((have.astype(np.int64), want.astype(np.int64)))
        return drawn[first] < self.targets[first].size, wishes

    def _draw_target(self, name: str, rows: Rows, rng: np.random.Generator) -> Codes:
        ties = [Tie(column, joint) for (target, column), joint in self.ties.items() if target == name]
        return draw_column(rows, self.marginals[name], ties, rng)


def _none_from(coder: Coder) -> int:
    """First code of a position that stands for "refers to none": below the first row."""
    return coder.codec.ordered


def fit_lookup(
    door: Door,
    key: ForeignKey,
    child: tuple[Mapping[str, Coder], OneWay],
    parent: Mapping[str, Coder] | NDArray[np.int64] | None,
    price: Price,
    fit: LookupFit,
    most: int,
) -> Lookup:
    """Measure the link along a key, for at most ``price``.

    Args:
        door: Open for the step.
        key: Not on the ownership path.
        child: Coders and released one-way counts of the child's attributes.
        parent: Coders of a private parent's attributes, the place of each row of a public parent (`order_of_alike`), or
            None where a row can refer to one row alone.
        price: Of everything here.
        fit: How to spend it.
        most: Bound on the rows of one unit that refer along the key.
    """
    own: dict[str, tuple[Feature, Coder]] = {name: (Own(name), coder) for name, coder in child[0].items()}
    if isinstance(parent, np.ndarray):
        return _to_public(door, key, child[1], own, parent, price, fit, most)
    features: dict[str, tuple[Feature, Coder]] = {}
    if parent:
        features = {f"{_TARGET}{name}": (OfParent(key, name), coder) for name, coder in parent.items()}
    elif key.optional:
        features[_ANY] = (ParentRow(key), present_or_not(_ANY))
    popularity = None
    if parent is not None:
        share = fit.popularity_share if features else 1.0
        popularity = rank_popularity(door, key, most, child[1].total, price.share(share))
        price = price.share(1 - share)
    if not features:
        return Lookup({}, {}, {}, popularity)
    view = door.view(ViewSpec(key.child, {**features, **own}), "lookup")
    share = fit.margin_share if own else 1.0
    noisy = view.measure("targets", [Marginal((name,)) for name in features], price.share(share))
    total = child[1].total
    clean = {name: onto_simplex(counts, total) for name, counts in zip(features, noisy.values, strict=True)}
    ties = _ties(view, {**features, **own}, clean, child[1], fit.pairs, price.share(1 - share)) if own else {}
    targets = {name: coder for name, (_, coder) in features.items()}
    return Lookup(targets, {name: counts / total for name, counts in clean.items()}, ties, popularity)


def _to_public(
    door: Door,
    key: ForeignKey,
    one_way: OneWay,
    own: Mapping[str, tuple[Feature, Coder]],
    place: NDArray[np.int64],
    price: Price,
    fit: LookupFit,
    most: int,
) -> Lookup:
    """`fit_lookup` along a key to a public table: its positions are the targets."""
    parents = len(place)
    column = Column(_POSITION, ColumnType.INTEGER)
    coder = Coder(interval_codec(column, 0, max(parents - 1, 0), min(max(parents, 1), _MAX_POSITIONS)))
    share = fit.popularity_share + (1 - fit.popularity_share) * fit.margin_share if own else 1.0
    popularity, none = row_popularity(door, key, most, one_way.total, place, price.share(share))
    marginal = np.bincount(coder.encode_numbers(np.arange(parents)), popularity.counts, coder.size).astype(np.float64)
    marginal[_none_from(coder)] = none if key.optional else 0.0
    if marginal.sum() <= 0:
        marginal[0] = 1.0
    marginal /= marginal.sum()
    if not own:
        return Lookup({_POSITION: coder}, {_POSITION: marginal}, {}, popularity)
    features: dict[str, tuple[Feature, Coder]] = {_POSITION: (ParentRow(key), coder), **own}
    view = door.view(ViewSpec(key.child, features), "lookup")
    ties = _ties(view, features, {_POSITION: marginal * one_way.total}, one_way, fit.pairs, price.share(1 - share))
    return Lookup({_POSITION: coder}, {_POSITION: marginal}, ties, popularity)


def _ties(
    view: Curator,
    features: Mapping[str, tuple[Feature, Coder]],
    targets: Mapping[str, Array],
    one_way: OneWay,
    fit: PairwiseFit,
    price: Price,
) -> dict[tuple[str, str], Array]:
    """Joints of targets and the child's columns, as many as ``price`` supports."""
    candidates = [(target, column) for target in targets for column in features if column not in targets]
    # Neighbours in a public table have nothing to do with each other: its positions are a list.
    ordered = ordered_codes({name: coder for name, (_, coder) in features.items() if name != _POSITION})
    return fit.fit_pairs(view, {**targets, **one_way.clean()}, candidates, price, ordered)
