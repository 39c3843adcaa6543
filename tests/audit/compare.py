"""Compare what one unit moves with what is claimed: in views of random databases, and in whole plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privbench_core.errors import PrivbenchError
from privbench_core.privacy.budget import Budget, Price, delta_for
from privbench_core.privacy.noise import Counts, Sensitivity
from privbench_core.privacy.queries import Distances, Marginal, ParentCounts, Query, RankSums, SignProducts
from privbench_core.privacy.relations import is_set_null_across_units
from privbench_core.privacy.view_building import build_references, build_view, distinct_weights
from privbench_core.privacy.views import CodedView
from privbench_core.schema.columns import ColumnType
from privbench_core.synthesizers.contract import Plan
from tests.audit.random_rows import Drawn
from tests.helpers.networks import random_scale, random_view
from tests.helpers.noise import RecordingNoise, ReplayNoise, SeededNoise, Violation
from tests.helpers.plans import Trace, computing_steps, plan_with, run_step

_SLACK = 1 + 1e-9
_OPTIONS: tuple[Mapping[str, Any], ...] = (
    {}, {"beta": 2}, {"alpha": 0.05, "beta": 12}, {"usefulness": 0.1}, {"tables": "independent"},
    {"latents": 2, "usefulness": 0.01, "iterations": 2}, {"tables": "privspn"},
)  # fmt: skip
_BUDGETS = (Budget(3000.0, 1e-6), Budget(60.0, 1e-6), Budget(3.0, 1e-6), Budget(3000.0), Budget(60.0))


@dataclass
class Tally:
    """What was compared, and how far one unit moved it over what is claimed.

    Attributes:
        compared: Comparisons by mechanism.
        largest: The largest ratio by mechanism.
        counts: Databases, neighbours, plans, replays.
        broken: One line per claim that did not hold.
    """

    compared: Counter[str] = field(default_factory=Counter)
    largest: dict[str, float] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def note(self, mechanism: str, ratio: float, where: object) -> None:
        """Count one comparison."""
        self.compared[mechanism] += 1
        self.largest[mechanism] = max(ratio, self.largest.get(mechanism, 0.0))
        if ratio > _SLACK:
            self.broken.append(f"{mechanism}: {ratio:.4g} times what is claimed, {where}")

    def add(self, other: Tally) -> None:
        """Add what another process has compared."""
        self.compared += other.compared
        self.counts += other.counts
        self.broken += other.broken
        for mechanism, ratio in other.largest.items():
            self.largest[mechanism] = max(ratio, self.largest.get(mechanism, 0.0))


def compare_views(rng: np.random.Generator, drawn: Drawn, tally: Tally, where: object, views: int = 4) -> None:
    """Compare random views of a database and of its neighbours: every unit's, up to five."""
    private, every = drawn.private(), drawn.units()
    for chosen in rng.permutation(len(every))[:5]:
        smaller = drawn.without(every[chosen]).private()
        tally.counts["neighbours"] += 1
        here = (where, every[chosen])
        for _ in range(views):
            spec = random_view(rng, drawn.schema)
            one, other = build_view(private, spec), build_view(smaller, spec)
            for mechanism, query in _queries(rng, one):
                _note(tally, mechanism, query, one, other, (here, spec.table, [*spec.features]))
        for key in (k for table in drawn.schema.private_tables for k in table.foreign_keys):
            most = int(rng.choice([1, 2, 8]))
            one, other = build_references(private, key, most), build_references(smaller, key, most)
            ends = RankSums((1, 2, 3, 5, 100))
            _note(tally, "RankSums", ends, one, other, (here, key.name, most))
            if drawn.schema.table(key.parent).public:
                parents = np.arange(private.rows(key.parent))
                clipped = bool(one.clipped and rng.random() < 0.5)
                counts = ParentCounts(parents, clipped=clipped)
                _note(tally, f"ParentCounts{', clipped' * clipped}", counts, one, other, (here, key.name, most))
            if is_set_null_across_units(drawn.schema, key):
                bound = int(rng.integers(1, 4))
                one, other = (build_references(each, key, most, bound) for each in (private, smaller))
                _note(tally, "RankSums, bounded references", ends, one, other, (here, key.name, most, bound))
        for table in drawn.schema.private_tables:
            for column in (c for c in table.attributes if c.type is ColumnType.CATEGORY):
                named = ("u",) if rng.random() < 0.5 else ()
                (one_sums, view), (other_sums, _) = (
                    distinct_weights(each, table.name, column.name, named) for each in (private, smaller)
                )
                shift = np.array([one_sums.get(v, 0) - other_sums.get(v, 0) for v in {*one_sums, *other_sums}])
                ratio = float((shift.astype(float) ** 2).sum() ** 0.5) / view.stability
                tally.note("threshold", ratio, (here, table.name, column.name))


def _queries(rng: np.random.Generator, view: CodedView) -> Iterator[tuple[str, Query]]:
    """Yield queries on a view, each with the name of its mechanism."""
    names = tuple(map(str, rng.permutation([*view.sizes])[: int(rng.integers(1, 4))]))
    tuples = ", tuples" if view.weight_scale > 1 << 21 else ""
    yield f"Marginal{tuples}", Marginal(names)
    groups = tuple(np.unique(rng.integers(0, 3, view.sizes[name]), return_inverse=True)[1] for name in names)
    yield f"Marginal, groups of codes{tuples}", Marginal(names, groups)
    if view.clipped:
        yield "Marginal, clipped", Marginal(names, clipped=True)
        if view.weight_scale > 1:
            scales = tuple(random_scale(rng, int(of.max()) + 1) for of in groups)
            if np.prod([max(each) for each in scales]) <= 1 << 20:
                yield "Marginal, clipped and scaled", Marginal(names, groups, clipped=True, scales=scales)
    shape = tuple(view.sizes[name] for name in names)
    references = [(names, rng.normal(0, 3, shape)), (names[:1], rng.normal(0, 3, shape[:1]))]
    yield f"Distances{tuples}", Distances((tuple(references), (references[0],)))
    signs = {name: rng.integers(-1, 2, view.sizes[name]) for name in names}
    yield f"SignProducts{tuples}", SignProducts(signs, (names, names[:1]))


def _note(tally: Tally, mechanism: str, query: Query, one: CodedView, other: CodedView, where: object) -> None:
    """Note how far a query moves, over its claims on L1 and on L2."""
    shift = (query.evaluate(one) - query.evaluate(other)).astype(float)
    l1, l2_squared = query.moves(one)
    if query.moves(other) != (l1, l2_squared):
        tally.broken.append(f"{mechanism}: the claim depends on the rows, {where}")
    tally.note(mechanism, max(float(np.abs(shift).sum()) / l1, float((shift**2).sum() / l2_squared) ** 0.5), where)


class _Notes(ReplayNoise):
    """Replays noise, and notes how far each call moves instead of stopping at what is too far."""

    def __init__(self, tape: list[Any], note: Callable[[str, float], None]) -> None:
        super().__init__(tape)
        self._note = note

    def _check(self, site: str, norm: str, shift: float, declared: float) -> None:
        if norm != "L1" or not self._gaussian:  # the norm that the noise was scaled by
            step, *_, last = site.split("/")
            what = "pairs" if " x " in last else last.split(" of ")[0].split(" along ")[0]
            self._note(f"{step}: {what}", shift / declared)

    def add(self, site: str, exact: Counts, sensitivity: Sensitivity, price: Price) -> Counts:
        self._gaussian = price.measure.value != "pure"
        return super().add(site, exact, sensitivity, price)

    _gaussian = False


def replay_plan(rng: np.random.Generator, drawn: Drawn, tally: Tally, where: object) -> None:
    """Run a random plan on a database, and replay it on two of its neighbours, one of them a unit more."""
    budget, options = _BUDGETS[int(rng.integers(len(_BUDGETS)))], _OPTIONS[int(rng.integers(len(_OPTIONS)))]
    try:
        plan = plan_with(drawn.schema, budget, options)
    except PrivbenchError:  # what no sampling can keep, or lists to learn without δ
        tally.counts["plans refused"] += 1
        return
    tally.counts["plans"] += 1
    every = drawn.units()
    for chosen in rng.permutation(len(every))[:2]:
        smaller = drawn.without(every[chosen])
        pair = (drawn, smaller) if rng.random() < 0.7 else (smaller, drawn)
        _replay(plan, pair, int(rng.integers(2**31)), tally, (where, every[chosen], options, str(budget)))
        tally.counts["replays"] += 1


def _replay(plan: Plan, pair: tuple[Drawn, Drawn], seed: int, tally: Tally, where: object) -> None:
    noise, first = RecordingNoise(SeededNoise(seed)), Trace()
    for step in computing_steps(plan):
        run_step(step, pair[0].checked, noise, first)
    replayed, second = _Notes(noise.tape, lambda mechanism, ratio: tally.note(mechanism, ratio, where)), Trace()
    try:
        for step in computing_steps(plan):
            before = replayed.loss
            run_step(step, pair[1].checked, replayed, second)
            if step.price.amount:
                tally.note(
                    f"{step.kind.value}: whole step", (replayed.loss - before) / step.price.amount, (where, step.key)
                )
            if first.artifacts[step.key].to_bytes() != second.artifacts[step.key].to_bytes():
                tally.broken.append(f"{step.key}: released something around the noise, {where}")
        replayed.finish()
        if plan.budget.delta:
            claimed = plan.budget.delta - plan.budget.threshold_delta
            tally.note("whole plan: δ at its ε", delta_for(replayed.loss, plan.budget.epsilon) / claimed, where)
    except Violation as found:
        tally.broken.append(f"{found}, {where}")
