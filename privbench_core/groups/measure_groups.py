"""Measure groups: normalised permutation marginals (NPMs) of an owned table, class by class of group sizes (PrivPetal).

Per class: one-way marginals of the children, reconciled with the profile's (owners' follow from what is released of
sizes); R-scores of all pairs of columns (of one child, of a child and its owner, of two children) against the product
of these; the pairs that promise to lower the error more than their noise raises it; and columns in three children,
where pairs do not explain them.

Groups of different sizes are different relations, and as a size is a group's own, their marginals cost no more together
than the dearest of them does. But each has the noise of a whole marginal, so that sizes with few rows are merged: the
merging interval of Algorithm 3, chosen from released numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations, combinations_with_replacement, permutations
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.discretizer import Discretizer, ordered_codes
from privbench_core.estimators.coarsening import Candidates
from privbench_core.estimators.denoising import onto_simplex
from privbench_core.estimators.fitting import fit_margins
from privbench_core.groups.group_model import GroupClass, GroupModel
from privbench_core.guards import FITTING_ROUNDS, LARGEST_ANY, NEGLIGIBLE, SMOOTHING
from privbench_core.links.fanout import Fanout
from privbench_core.links.measure_fanout import Ownership
from privbench_core.marginals.measure_one_way import measure_one_way
from privbench_core.marginals.measure_pairs import PairwiseFit
from privbench_core.marginals.measure_scores import has_power, pair_scores
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import CoMember, Feature, OwnerFanout
from privbench_core.privacy.permutations import MOST_MEMBERS
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.split_rules import ByValue
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.profile import OWNER_FANOUT, Profile
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import Identity
from privbench_core.units.measure_by_size import Features

Pair = tuple[str, str]
_OTHER, _THIRD = "other.", "third."  # columns of the second child of a pair, and of the third of a triple


@dataclass(frozen=True)
class FanoutClasses:
    """Expected numbers of rows by the size of their group, from released counts.

    Attributes:
        rows: In groups with at least 1, 2, 3 members, which are what marginals of as many members count; by code of the
            size, shape (3, codes).
        limits: T by code of the size: up to how many rows of a unit such groups may be counted in full, shape (codes,).
        ends: Whether a class may end after a code: all groups up to it may have a T of their own; shape (codes,).
    """

    rows: Array
    limits: NDArray[np.int64]
    ends: NDArray[np.bool_]

    @classmethod
    def of(cls, fanout: Fanout, owners: float, rows_per_unit: int, *, of_units: bool) -> FanoutClasses:
        """Return rows in the groups of so many owners, and rows without an owner, each of which is a group.

        ``of_units`` says that a group is all that a unit has, so that groups may have a T of their own.
        """
        codec, size, (code_of, within) = fanout.codec, fanout.sizes.size, fanout.sizes.shares
        expected = owners * fanout.counts[code_of] * within * codec.means(rows_per_unit)
        # Small sizes are cells of their own.
        in_cells = [expected * (np.arange(codec.size) >= members) for members in range(1, MOST_MEMBERS + 1)]
        rows = np.array([np.bincount(code_of, cells, size) for cells in in_cells], dtype=np.float64)
        rows[0, fanout.sizes.encode_numbers(np.ones(1, dtype=np.int64))] += fanout.ownerless
        if not of_units:
            return cls(rows, np.full(size, rows_per_unit), np.ones(size, dtype=bool))
        largest = np.zeros(size, dtype=np.int64)
        np.maximum.at(largest, code_of, np.append(codec.starts[1:], codec.bound + 1) - 1)
        power = 1 << np.ceil(np.log2(np.maximum(largest, 1))).astype(np.int64)
        least = np.where(largest <= LARGEST_ANY, np.maximum(largest, 1), power)
        return cls(rows, np.minimum(least, rows_per_unit), (largest >= rows_per_unit) | (power == largest))

    def shares(self, inside: NDArray[np.bool_]) -> Array:
        """Return, of the rows in groups of some sizes, the share in those with at least 1, 2, 3 members, shape (3,)."""
        counts = self.rows[:, inside].sum(axis=1)
        return np.asarray(counts / max(counts[0], 1.0), dtype=float)

    def classes(self, least: float) -> tuple[int, ...]:
        """Return the class of each code: the shortest intervals of at least ``least`` rows, the rest in the last.

        ``least`` is for the noise of the largest T, and less for less.
        """
        class_of, current, held = [], 0, 0.0
        needed = least * self.limits / self.limits[-1]
        for number, rows in enumerate(self.rows[0]):
            class_of.append(current)
            held += float(rows)
            if self.ends[number] and held >= needed[number] and self.rows[0, number + 1 :].sum() >= least:
                current, held = current + 1, 0.0
        return tuple(class_of)


def counted_by_class(classes: FanoutClasses, class_of: Sequence[int]) -> NDArray[np.int64]:
    """Return T by code of the size, shape (codes,): all rows of a class count as its largest groups do."""
    largest = np.zeros(max(class_of) + 1, dtype=np.int64)
    np.maximum.at(largest, np.asarray(class_of), classes.limits)
    return np.asarray(largest[np.asarray(class_of)])


def reconciled(parts: Sequence[OneWay], whole: OneWay) -> list[OneWay]:
    """Return counts of the parts of a split, by least squares with independent counts of the whole they add up to.

    Post-processing. With one part it is the average by variances. All have the same columns.
    """
    better: list[OneWay] = []
    missing = {name: whole.counts[name] - sum(part.counts[name] for part in parts) for name in parts[0].counts}
    variance = {name: whole.sigmas[name] ** 2 + sum(part.sigmas[name] ** 2 for part in parts) for name in missing}
    for part in parts:
        share = {name: part.sigmas[name] ** 2 / np.maximum(variance[name], SMOOTHING) for name in missing}
        counts = {name: noisy + share[name] * missing[name] for name, noisy in part.counts.items()}
        sigmas = {name: part.sigmas[name] * np.sqrt(1 - share[name]) for name in missing}
        better.append(replace(part, counts=counts, sigmas=sigmas))
    return better


@dataclass(frozen=True)
class GroupFit:
    """How the price of an owned table's groups is spent.

    Attributes:
        PAIRS: How joints of pairs are chosen and measured.
        scores: Share of R-scores in what an owned table's groups cost, σ_R of Algorithm 1 (a 1 of 1:1:8).
        margins: Share of the one-way marginals of each class of group sizes, which stand for its noisy group sizes (the
            other 1); the rest is for normalised permutation marginals (the 8).
        usefulness: λ: a class of group sizes must have so many groups that the average marginal is λ-useful.
        triples: Share of the NPMs' price for marginals over three members (permutation relations of order 3).
    """

    PAIRS: ClassVar[PairwiseFit] = PairwiseFit(max_pairs=1000)
    scores: float = 0.1
    margins: float = 0.1
    usefulness: float = 3.0
    triples: float = 0.05

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        chosen = {each.name: getattr(self, each.name) for each in fields(GroupFit)}
        return {**chosen, "pairs": self.PAIRS.identity()}

    def _prices(self, price: Price) -> dict[str, Price]:
        """Return the table of prices of a class: the paper's 1 : 1 : 8, of which triples get a share where useful."""
        npms = price.share(1 - self.scores - self.margins)
        return {
            "scores": price.share(self.scores),
            "margins": price.share(self.margins),
            "npms": npms,
            "triples": npms.share(self.triples),
            "pairs": npms.share(1 - self.triples),
        }

    def _least(self, curator: Curator, price: Price, pairs: int, cells: float) -> float:
        """Return the groups that make a marginal of so many cells λ-useful, if ``pairs`` are measured for ``price``."""
        sigma = curator.sigma([Marginal(())], price.share(1 / pairs))
        return self.usefulness * math.sqrt(2 / math.pi) * sigma * cells

    def fit(self, session: PrivateSession, ownership: Ownership, fanout: Fanout, price: Price) -> GroupModel:
        """Measure the groups along an ownership key, for at most ``price``.

        Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4, 7 and 8.

        Args:
            session: Open for the step.
            ownership: The key, and both sides; children have attributes.
            fanout: Released sizes of the groups.
            price: Of everything here.
        """
        child, of_units = ownership.child, ownership.of_units
        context: dict[str, tuple[Feature, Discretizer]]
        context = {OWNER_FANOUT: (OwnerFanout(ownership.key), fanout.sizes)}
        context |= ownership.parent.of_owner(ownership.key)
        sizes = FanoutClasses.of(fanout, ownership.parent.size.rows, child.size.rows_per_unit, of_units=of_units)
        spec = _view(ownership.key, context, child)
        curator = session.view(spec, "groups")
        own, codes = list(child.discretizers), curator.sizes
        kinds = (  # of one child, of its owner and it, of two children
            list(combinations(own, 2)),
            [(name, column) for name in context for column in own],
            [(a, f"{_OTHER}{b}") for a, b in combinations_with_replacement(own, 2)],
        )
        cells = [codes[a] * codes[b] for kind in kinds for a, b in kind if min(codes[a], codes[b]) > 1]
        prices = self._prices(price)
        least = self._least(curator, prices["npms"], max(len(cells), 1), float(np.mean(cells or [1])))
        class_of = sizes.classes(least)
        full = counted_by_class(sizes, class_of)
        counted = tuple(sorted(set(full.tolist())))
        parts = session.view(replace(spec, rows_per_unit=counted), "groups").split(ByValue(OWNER_FANOUT, class_of))
        insides = [np.asarray(class_of) == number for number in range(len(parts))]
        in_rows = [float(full[inside].max() / full.max()) for inside in insides]
        margins = [
            measure_one_way(part, own, prices["margins"]).times(factor)
            for part, factor in zip(parts, in_rows, strict=True)
        ]
        ordered = ordered_codes({**{name: coder for name, (_, coder) in context.items()}, **child.discretizers})
        ordered |= {f"{_OTHER}{name}": number for name, number in ordered_codes(child.discretizers).items()}
        classes = []
        for part, margin, factor, inside in zip(
            parts, reconciled(margins, child.one_way), in_rows, insides, strict=True
        ):
            one_way = margin.times(1 / factor)
            shares = ownership.expected(fanout, context, inside)
            owners = {name: of_name * one_way.total for name, of_name in shares.items()}
            classes.append(self._class(part, owners, one_way, ordered, kinds, sizes.shares(inside), price))
        return GroupModel(OWNER_FANOUT, class_of, tuple(classes), counted if of_units else ())

    def _class(
        self,
        part: Curator,
        owners: Mapping[str, Array],
        one_way: OneWay,
        ordered: Mapping[str, int],
        kinds: tuple[list[Pair], ...],
        shares: Array,
        price: Price,
    ) -> GroupClass:
        """Measure one class of sizes, for ``price`` less the share of margins.

        ``owners`` are expected counts of the context's columns, ``shares`` those of the rows in groups with at least 1,
        2, 3 members, and ``kinds`` candidate pairs: of one child, of its owner and it, of two children.
        """
        own, three = list(one_way.counts), one_way.total * shares[2]
        clean = {**owners, **one_way.clean()}
        marginals = {name: clean[name] / one_way.total for name in own}
        of_two = {name: counts * shares[1] for name, counts in clean.items()}
        of_two |= {f"{_OTHER}{name}": of_two[name] for name in own}
        candidates = [
            (a, b)
            for kind in (kinds if shares[1] > 0 else kinds[:2])
            for a, b in kind
            if len(clean[a]) > 1 and min(part.sizes[a], part.sizes[b]) > 1
        ]
        if not has_power(part, len(candidates), one_way.total, price):
            return GroupClass(marginals)
        expected, prices = {**of_two, **clean}, self._prices(price)
        scores = pair_scores(part, expected, candidates, prices["scores"])
        ways = Candidates.of(candidates, scores, expected, ordered)
        useful = self._useful(part, own, three, prices["triples"])
        for_pairs = prices["pairs" if useful else "npms"]
        tables = self.PAIRS.choose(part, ways.useful, ways.cells, for_pairs).tables(ways)
        chosen = [[table for table in tables if table.pair in kind] for kind in kinds]
        weights = [sum(table.cells ** (2 / 3) for table in kind) for kind in chosen]
        within, above, between = [
            self.PAIRS.joints(part, kind, counts, for_pairs.share(weight / sum(weights))) if kind else {}
            for kind, weight, counts in zip(chosen, weights, (clean, clean, of_two), strict=True)
        ]
        between = {(a, b.removeprefix(_OTHER)): joint for (a, b), joint in between.items()}
        same = {name: between[name, name] for name in useful if (name, name) in between}
        triples = self._triples(part, same, three, prices["triples"]) if same else {}
        return GroupClass(marginals, within, above, between, triples)

    def _useful(self, part: Curator, own: list[str], three: float, price: Price) -> list[str]:
        """Return columns whose marginal over three members is λ-useful, if all are measured; fewest codes first."""
        useful: list[str] = []
        for name in sorted((name for name in own if part.sizes[name] > 1), key=lambda name: part.sizes[name]):
            if three < self._least(part, price.share(1 - self.scores), len(useful) + 1, part.sizes[name] ** 3):
                break
            useful.append(name)
        return useful

    def _triples(self, part: Curator, same: Mapping[str, Array], three: float, price: Price) -> dict[str, Array]:
        """Return joints of columns in ``three`` members that pairs do not explain (the paper's h-scores, T2 steps).

        ``same`` are released joints of each column in two members.
        """
        expected = {name: three * _explained((joint + joint.T) / 2) for name, joint in same.items()}
        columns = {name: (name, f"{_OTHER}{name}", f"{_THIRD}{name}") for name in same}
        groups = tuple(((columns[name], expected[name]),) for name in same)
        noisy = part.measure("triple scores", [Distances(groups)], price.share(self.scores))
        cells = np.array([expected[name].size for name in same], dtype=float)
        for_joints = price.share(1 - self.scores)
        chosen = self.PAIRS.choose(part, noisy.values[0][:, None] / 2, cells[:, None], for_joints)
        names = [list(same)[i] for i, _ in chosen.ways]
        each, triples = for_joints.share(1 / max(len(names), 1)), {}
        for name in names:
            counts = part.measure(f"{name} in three", [Marginal(columns[name])], each).values[0]
            # The order of members means nothing: the average over their orders has less noise.
            mean = np.mean([counts.transpose(order) for order in permutations(range(3))], axis=0)
            joint = onto_simplex(mean, three) / three
            explained = expected[name] / max(expected[name].sum(), 1.0)
            triples[name] = (1 - NEGLIGIBLE) * joint + NEGLIGIBLE * explained
        return triples


def _explained(pair: Array) -> Array:
    """Return the joint of three members of largest entropy that has this pair table."""
    size = len(pair)
    margins = [(axes, pair) for axes in ((0, 1), (0, 2), (1, 2))]
    return fit_margins(np.full((size,) * 3, size**-3.0), margins, FITTING_ROUNDS)


def _view(key: ForeignKey, context: Features, child: Profile) -> ViewSpec:
    """Return the view with columns of a child, of its owner, and of other children."""
    features = {**context, **child.own()}
    for member, prefix in enumerate((_OTHER, _THIRD), start=1):
        features |= {f"{prefix}{name}": (CoMember(key, member, name), c) for name, c in child.discretizers.items()}
    return ViewSpec(key.child, features, (child.size.rows_per_unit,))
