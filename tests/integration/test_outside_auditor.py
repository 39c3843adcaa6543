"""An auditor from outside, Re:cord-play, over whole plans of every synthesizer: it finds nothing, and would.

Its authors report 11 findings in dpmm, 8 in mbi and 5 in synthcity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest

from privbench_core.privacy import queries
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.noise import Counts, NoiseSource, OpenDPNoise, Sensitivity
from privbench_core.privacy.views import CodedView
from privbench_core.synthesizers.contract import Plan
from privbench_core.synthesizers.privpetal import PrivPetal
from tests.helpers.databases import Database, adversaries, forum, poll, shop, site, town
from tests.helpers.plans import Trace, computing_steps, plan_with, run_step

audit_primitives: Any = pytest.importorskip(
    "dp_recorder.auditing.audit_primitives", reason="pip install --no-deps --requirement tests/auditor.txt"
)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

GAUSSIAN, PURE = Budget(30.0, 1e-6), Budget(30.0)
Case = tuple[Callable[[], Database], Callable[[Database], Plan]]


def _privbench(budget: Budget, **options: Any) -> Callable[[Database], Plan]:
    return lambda database: plan_with(database.schema, budget, options)


def _privpetal(database: Database) -> Plan:
    return PrivPetal().plan(database.schema, Budget(3000.0, 1e-6), {"usefulness": 0.1})


def _privlava(database: Database) -> Plan:
    return plan_with(database.schema, Budget(3000.0, 1e-6), {"latents": 1, "usefulness": 0.01})


def _relational(budget: Budget, tables: str) -> Callable[[Database], Plan]:
    return lambda database: plan_with(database.schema, budget, {"tables": tables})


HISTOGRAM: Mapping[str, Any] = {"beta": 12, "alpha": 0.05}
CASES: dict[str, Case] = {
    "privbench, Gaussian": (partial(town, 0), _privbench(GAUSSIAN)),
    "privbench, Laplace": (partial(town, 0, learned=False), _privbench(PURE)),
    "privbench, Laplace in two parts": (partial(poll, 0), _privbench(Budget(6.0))),
    "privbench, numbers of siblings": (partial(site, 0), _privbench(GAUSSIAN)),
    "privspn, Gaussian": (partial(town, 0), _privbench(GAUSSIAN, **HISTOGRAM)),
    "privspn, Laplace": (partial(shop, 0, learned=False), _privbench(PURE, **HISTOGRAM)),
    "privbench, a public table": (partial(shop, 0), _privbench(GAUSSIAN)),
    "privbench, several parents": (partial(forum, 0), _privbench(GAUSSIAN)),
    "privlava": (partial(town, 0), _privlava),
    "privlava, several parents": (partial(forum, 0), _privlava),
    "privpetal": (partial(town, 0), _privpetal),
    "privpetal, a public table": (partial(shop, 0), _privpetal),
    "privpetal, several parents": (partial(forum, 0), _privpetal),
    "relational, Gaussian": (partial(shop, 0), _relational(GAUSSIAN, "independent")),
    "relational, Laplace": (partial(shop, 0, learned=False), _relational(PURE, "independent")),
    "relational, pairwise tables, several parents": (partial(forum, 0), _relational(GAUSSIAN, "pairwise")),
    "relational, sum-product tables": (partial(town, 0), _relational(GAUSSIAN, "privspn")),
}


def _audited(kind: str, metric: Callable[[Any, Any], float], drawn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``drawn`` as the auditor intercepts it: ``exact`` is private, and ``declared`` how far it may move."""
    spec = audit_primitives.audit_spec(kind=kind, input_arg="exact", sensitivity_arg="declared", metric_fn=metric)
    return spec(drawn)


def _distance(order: float) -> Callable[[Any, Any], float]:
    return lambda one, other: float(np.linalg.norm(np.subtract(one, other, dtype=float).ravel(), order))


_l2 = _distance(2)


def _l2_of_keys(one: dict[str, int], other: dict[str, int]) -> float:
    keys = sorted(one.keys() | other.keys())
    return _l2([one.get(key, 0) for key in keys], [other.get(key, 0) for key in keys])


@dataclass(frozen=True)
class AuditedNoise:
    """Passes every call on to ``source``, by way of the auditor that is active.

    What must not depend on private rows, the site, the shape, the price and the declared sensitivity, are parameters
    that the auditor compares.
    """

    source: NoiseSource
    secure: bool = False

    def add(self, site: str, exact: Counts, sensitivity: Sensitivity, price: Price) -> Counts:
        """See `NoiseSource`."""

        def drawn(exact: Counts, **_: Any) -> Counts:
            return self.source.add(site, exact, sensitivity, price)

        pure = price.measure is Measure.PURE
        kind, metric, declared = (
            ("laplace", _distance(1), sensitivity.l1) if pure else ("gaussian", _l2, sensitivity.l2)
        )
        audited = _audited(kind, metric, drawn)
        return np.array(audited(exact=exact, declared=declared, site=site, shape=np.shape(exact), price=price))

    def choose(self, site: str, scores: Counts, sensitivity: int, price: Price) -> int:
        """See `NoiseSource`."""

        def drawn(exact: Counts, **_: Any) -> int:
            return self.source.choose(site, exact, sensitivity, price)

        audited = _audited("choice", _distance(np.inf), drawn)
        return int(audited(exact=scores, declared=sensitivity, site=site, candidates=len(scores), price=price))

    def keep(
        self, site: str, exact: dict[str, int], sensitivity: Sensitivity, price: Price, touched: int
    ) -> dict[str, int]:
        """See `NoiseSource`."""

        def drawn(exact: dict[str, int], **_: Any) -> dict[str, int]:
            return self.source.keep(site, exact, sensitivity, price, touched)

        audited = _audited("keys", _l2_of_keys, drawn)
        return dict(audited(exact=exact, declared=sensitivity.l2, site=site, touched=touched, price=price))


def audited(plan: Plan, database: Database, unit: object) -> int:
    """Record the plan on a database and play it back on its neighbour; return how many draws were compared.

    Raises:
        AssertionError: A finding, in the auditor's words.
    """
    auditor = audit_primitives.Auditor()
    for rows in (database, database.without(unit)):
        if auditor.log:
            auditor.set_replay()
        trace = Trace()
        with auditor:
            for step in computing_steps(plan):
                artifact = run_step(step, rows, AuditedNoise(OpenDPNoise()), trace)
                audit_primitives.ensure_equality(**{"/".join(step.key): blake2b(artifact.to_bytes()).hexdigest()})
    assert auditor._cursor == len(auditor.log), "fewer draws on the neighbour"
    auditor.validate_records()
    return sum(entry.kind != "EQ" for entry in auditor.log)


@pytest.mark.parametrize("case", CASES)
def test_the_auditor_finds_nothing(case: str) -> None:
    make, plan_of = CASES[case]
    database = make()
    plan = plan_of(database)
    for unit in adversaries(database, 0):
        assert audited(plan, database, unit) >= 10


def test_the_auditor_finds_a_sensitivity_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = queries.Marginal.moves

    def too_little(self: queries.Marginal, view: CodedView) -> tuple[float, float]:
        l1, l2_squared = moves(self, view)
        return l1 / 2, l2_squared / 4

    monkeypatch.setattr(queries.Marginal, "moves", too_little)
    database = town(0)
    with pytest.raises(AssertionError, match=r"gaussian.*Dist .* > Sens"):
        audited(_privbench(GAUSSIAN)(database), database, database.units()[0])


def test_the_auditor_finds_a_look_around_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = Curator.measure

    def named(self: Curator, what: str, *rest: Any) -> Any:
        return measure(self, f"{what}, {self._view.data.held().rows} rows", *rest)

    monkeypatch.setattr(Curator, "measure", named)
    database = town(0)
    with pytest.raises(AssertionError, match="Params mismatch"):
        audited(_privbench(GAUSSIAN)(database), database, database.units()[0])
