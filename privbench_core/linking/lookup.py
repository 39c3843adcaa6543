"""Keys that are not on the ownership path: which row of another parent a row refers to, given its attributes.

A *public* parent is referred to by position: the joint of (position, attribute of the row) is released where it pays.
A *private* parent is referred to by its attributes: joints of (attribute of the parent, attribute of the row) are
released, a row draws the attributes its parent should have, and then one of the synthetic parents that have them. Of a
private parent without attributes only whether a row refers to one is released, where the key may be NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.codec import Codes
from privbench_core.domain.coder import Coder, ordered_codes
from privbench_core.domain.intervals import interval_codec
from privbench_core.domain.simplex import onto_simplex
from privbench_core.linking.choice import Choice, Level, pick_parents
from privbench_core.linking.fanout import End
from privbench_core.linking.presence import present_or_not
from privbench_core.models.conditional import Tie, draw_column
from privbench_core.models.estimate import mutual_information
from privbench_core.models.pairwise import PairwiseFit
from privbench_core.models.rows import Rows
from privbench_core.privacy.budget import Price
from privbench_core.privacy.door import Door
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.views import Feature, OfParent, Own, ParentRow, ViewSpec
from privbench_core.schema.model.columns import Column, ColumnType
from privbench_core.schema.model.constraints import ForeignKey

Array = NDArray[np.float64]
_TARGET = "target."
_POSITION = "target.#row"
_ANY = "target.#any"  # code 0: refers to some row, 1: to none
_MAX_POSITIONS = 256
_MAX_TARGETS = 3
_MARGIN_SHARE = 0.3


@dataclass(frozen=True)
class Lookup:
    """Released: the link along one key that is not on the ownership path.

    Attributes:
        targets: Column of the target ("target.<column>" or its position) -> coder.
        marginals: The same -> probabilities; one more code than the coder has, the last, means "refers to none".
        ties: (target column, child's column) -> joint.
        by_position: Whether the target is a position in a public table.
    """

    targets: Mapping[str, Coder]
    marginals: Mapping[str, Array]
    ties: Mapping[tuple[str, str], Array]
    by_position: bool

    def to_dict(self) -> dict[str, Any]:
        """A description that `Artifact` can store."""
        return {
            "targets": [[name, coder.to_dict()] for name, coder in self.targets.items()],
            "marginals": [[name, p] for name, p in self.marginals.items()],
            "ties": [[target, column, joint] for (target, column), joint in self.ties.items()],
            "by_position": self.by_position,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Lookup:
        """The inverse of `to_dict`."""
        targets = {name: Coder.from_dict(coder) for name, coder in stored["targets"]}
        ties = {(target, column): joint for target, column, joint in stored["ties"]}
        return cls(targets, dict(stored["marginals"]), ties, stored["by_position"])

    def draw(
        self,
        rows: Rows,
        parents: Mapping[str, Codes],
        count: int,
        rng: np.random.Generator,
        choice: Choice | None = None,
    ) -> NDArray[np.int64]:
        """The row number of each row's parent, -1 for none; shape (n,).

        Args:
            rows: Rows with their own attributes drawn.
            parents: Codes of the synthetic parents' attributes, by column name; {} for a public parent.
            count: Number of parent rows.
            rng: Sampling only.
            choice: Which parents each row may refer to; None for any.
        """
        if count == 0:
            return np.full(rows.n, -1, dtype=np.int64)
        wanting, wishes = np.ones(rows.n, dtype=bool), list[Level]()
        if self.by_position:
            codes = self._draw_target(_POSITION, rows, rng)
            coder = self.targets[_POSITION]
            wanting = codes < _none_from(coder)
            wishes = [(coder.encode_numbers(np.arange(count)).astype(np.int64), codes.astype(np.int64))]
        elif _ANY in self.targets:
            wanting = self._draw_target(_ANY, rows, rng) == 0
        elif self.targets:
            wanting, wishes = self._wishes(rows, parents, rng)
        return pick_parents(wishes, wanting, choice or Choice.free(rows.n, count), rng)

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
    child: End,
    parent: Mapping[str, Coder] | int,
    price: Price,
    fit: PairwiseFit,
) -> Lookup:
    """Measure the link along a key, for at most ``price``.

    Args:
        door: Open for the step.
        key: Not on the ownership path.
        child: The table that has the key.
        parent: Coders of a private parent's attributes, or the number of rows of a public parent.
        price: Of everything here.
        fit: How joints are chosen and measured.
    """
    coders, one_way = child.coders, child.one_way
    features: dict[str, tuple[Feature, Coder]] = {}
    if isinstance(parent, int):
        column = Column(_POSITION, ColumnType.INTEGER)
        codec = interval_codec(column, 0, max(parent - 1, 0), min(max(parent, 1), _MAX_POSITIONS))
        features[_POSITION] = (ParentRow(key), Coder(codec))
    elif parent:
        features = {f"{_TARGET}{name}": (OfParent(key, name), coder) for name, coder in parent.items()}
    elif key.optional:
        features[_ANY] = (ParentRow(key), present_or_not(_ANY))
    targets = {name: coder for name, (_, coder) in features.items()}
    if not features:
        return Lookup({}, {}, {}, by_position=False)
    own: dict[str, tuple[Feature, Coder]] = {name: (Own(name), coder) for name, coder in coders.items()}
    view = door.view(ViewSpec(key.child, {**features, **own}, (child.size.rows_per_unit,)), "lookup")
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
    ordered = ordered_codes({**{name: coder for name, coder in targets.items() if name != _POSITION}, **coders})
    counts = {**clean, **one_way.clean()}
    ties = fit.fit_pairs(view, counts, candidates, price.share(1 - share), ordered) if own else {}
    marginals = {name: counts / total for name, counts in clean.items()}
    return Lookup(targets, marginals, ties, by_position=isinstance(parent, int))
