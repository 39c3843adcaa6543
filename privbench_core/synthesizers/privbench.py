"""PrivBench: a private sum-product network per table, fanouts along the keys, then sampling (Algorithm 1).

Budget, as in section 4.3 of the paper but with every view's stability at one unit, so that no table pays for its τ: a
share γ goes to tables (profile and model) and 1 - γ to foreign keys, each shared out by the number of attributes
involved; a small share is kept for validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privbench_core.measure.fanout import FanoutFit, fit_fanout
from privbench_core.measure.lookup import LookupFit
from privbench_core.measure.privspn import HistogramSPN, PairwiseSPN
from privbench_core.measure.profile import lists_to_learn
from privbench_core.measure.table import Network
from privbench_core.models.measured import Measured
from privbench_core.models.one_way import OneWay
from privbench_core.models.profile import Profile
from privbench_core.models.spn import node_from_dict
from privbench_core.privacy.budget import Budget, Price
from privbench_core.privacy.curator import Curator
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Plan, Step, StepContext
from privbench_core.synthesizers.options import FidelityOptions, parsed
from privbench_core.synthesizers.steps.assemble import refuse_impossible, whole_plan
from privbench_core.synthesizers.steps.learn import learn_steps
from privbench_core.synthesizers.steps.link import determined, link_step, lookup_step

_LEAVES = ("pairwise", "histogram")


@dataclass(frozen=True)
class Options(FidelityOptions):
    """Public parameters of PrivBench beside the common ones; the names of the paper where it has them.

    Attributes:
        leaf: "pairwise" (default) or "histogram", the paper's own leaves.
        gamma: γ, the share of tables; the rest is for foreign keys. The paper has 0.9 with one noisy count per key.
        profile: Share of a table's budget for a first look at its one-way marginals, where joints could pay; what
            joints do not need goes to marginals too.
        alpha, beta, gamma1, gamma2, iterations: α, β, γ1, γ2, J of Algorithms 3 to 5 (β also with pairwise leaves).
    """

    leaf: str = "pairwise"
    gamma: float = 0.7
    profile: float = 0.5
    alpha: float = 0.1
    beta: float = 10_000
    gamma1: float = 0.5
    gamma2: float = 0.5
    iterations: int = 2

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Options:
        """Options from a spec; every unknown name and bad value in one SpecError."""
        shares = frozenset({"gamma", "profile", "validation", "gamma1", "gamma2"})
        return parsed(cls(), given, shares=shares, least={"beta": 1, "iterations": 1}, choices={"leaf": _LEAVES})


class PrivBench:
    """The default synthesizer. Pure (δ = 0) and zCDP (δ > 0)."""

    name = "privbench"

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """See `Synthesizer.plan`."""
        chosen = Options.parse(options)
        refuse_impossible(schema, budget)
        total = budget.total()
        spendable = Price(total.measure, total.amount)
        private = schema.private_tables
        keys = [key for table in private for key in table.foreign_keys]
        links = {key: _link_size(schema, key) for key in keys}
        tables = {table.name: len(table.attributes) + 1 for table in private}
        gamma = chosen.gamma if keys else 1.0
        core = spendable.share(1 - chosen.validation)
        learners = [table for table in private if lists_to_learn(table)]
        steps: list[Step] = []
        for table in private:
            price = core.share(gamma * tables[table.name] / sum(tables.values()))
            if table in learners:
                price = price.with_delta(total.delta / len(learners))
            steps += _learn_steps(schema, table, price, chosen)
        for_links = core.share(1 - gamma)
        for key in keys:
            price = for_links.share(links[key] / sum(links.values()))
            made = fanout_step(schema, key, price) if key.owner else lookup_step(schema, key, price, LookupFit())
            steps.append(made)
        plan = whole_plan(self.name, schema, budget, steps, spendable.share(chosen.validation), chosen.limits)
        return replace(plan, joints=chosen.leaf != "histogram")


@dataclass(frozen=True)
class _Histograms:
    """The paper's own network, with the halvings of columns that it tries."""

    network: HistogramSPN
    rng: np.random.Generator

    def promising(self, *_: object) -> bool:
        """Every leaf measures its own histogram, so there is always something to spend on."""
        return True

    def find(self, curator: Curator, one_way: OneWay, price: Price) -> Measured:
        """See `HistogramSPN.build`."""
        return self.network.build(curator, one_way, price, self.rng)


def _learn_steps(schema: Schema, table: Table, price: Price, options: Options) -> list[Step]:
    """PrivSPN over a table's attributes."""

    def network(context: StepContext, ordered: Mapping[str, int]) -> Network:
        grower = _grower(options, ordered)
        if isinstance(grower, PairwiseSPN):
            return grower
        # Which halvings are tried does not depend on the run's seed: another sample must not buy the model again.
        return _Histograms(grower, replace(context, seed=0).rng("structure", table.name))

    return learn_steps(schema, table, price, options.profile, network, _grower(options, {}).identity())


def _grower(options: Options, ordered: Mapping[str, int]) -> PairwiseSPN | HistogramSPN:
    """What grows a network, with those options that its result depends on."""
    if options.leaf == "pairwise":
        return PairwiseSPN(ordered, beta=options.beta)
    return HistogramSPN(
        frozenset(ordered), options.alpha, options.beta, options.gamma1, options.gamma2, options.iterations
    )


def fanout_step(schema: Schema, key: ForeignKey, price: Price) -> Step:
    """The step that measures the link along an ownership key."""

    def run(context: StepContext) -> Artifact:
        own, above = (Profile.from_dict(context.inputs["profile", t].data["profile"]) for t in (key.child, key.parent))
        model = node_from_dict(context.inputs["model", key.child].data["model"])
        fanout = fit_fanout(context.opened(), key, above, own, model, price, FanoutFit())
        summary = {
            "attributes that depend on the number of children": len(fanout.fanout_tables),
            "pair_tables": len(fanout.pair_tables),
        }
        return Artifact({"link": fanout.to_dict(), "summary": summary})

    return link_step(schema, key, price, run, FanoutFit(), (("model", key.child),))


def _link_size(schema: Schema, key: ForeignKey) -> int:
    """Weight of a key in sharing out 1 - γ: the attributes it may pair table together."""
    parent = schema.table(key.parent)
    if determined(schema, key):
        return 1 + (len(schema.table(key.child).attributes) if key.optional else 0)
    return 1 + len(schema.table(key.child).attributes) + (1 if parent.public else len(parent.attributes))
