"""PrivBench: a private sum-product network per table, fanouts along the keys, then sampling (Algorithm 1).

Budget, as in section 4.3 of the paper but with every view's stability at one unit, so that no table pays for its τ: a
share γ goes to tables (profile and model) and 1 - γ to foreign keys, each shared out by the number of attributes
involved; a small share is kept for validation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from privbench_core.links.fanout import Fanout
from privbench_core.links.measure_fanout import PAIRS, fit_fanout
from privbench_core.marginals.measure_pairs import PairwiseFit
from privbench_core.marginals.measure_spn import PairwiseSPN
from privbench_core.privacy.budget import Budget, Price
from privbench_core.profiles.measure_profile import Network
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Plan, Step, StepContext
from privbench_core.synthesizers.options import FidelityOptions, Prices, divided
from privbench_core.synthesizers.steps.assemble import whole_plan
from privbench_core.synthesizers.steps.learned_link import LinkFit, completes_junction, reference_step
from privbench_core.synthesizers.steps.link import (
    determined,
    link_step,
    lookup_step,
    released_ownership,
)
from privbench_core.synthesizers.steps.profile import learn_steps
from privbench_core.tuning import TUNING

Learn = Callable[[Table, Price], list[Step]]
"""(table, price) -> the steps that learn the attributes of a private table."""
LinkStep = Callable[[Schema, ForeignKey, Price], Step]
"""(schema, key, price) -> the step that measures the link along a foreign key."""


@dataclass(frozen=True)
class LinkOptions(FidelityOptions):
    """Public parameters of the synthesizers that share a budget among tables and foreign keys.

    Attributes:
        gamma: γ, the share of tables; the rest is for foreign keys. The paper has 0.9 with one noisy count per key.
    """

    SHARES: ClassVar[frozenset[str]] = FidelityOptions.SHARES | {"gamma"}
    gamma: float = 0.7


@dataclass(frozen=True)
class SharedOptions(LinkOptions):
    """Public parameters of the synthesizers that have a sum-product network per table.

    Attributes:
        profile: Share of a table's budget for its first one-way marginals, where joints could pay; what joints do not
            need goes to marginals too.
        beta: β, the smallest noisy number of rows of a part.
    """

    SHARES: ClassVar[frozenset[str]] = LinkOptions.SHARES | {"profile"}
    LEAST: ClassVar[Mapping[str, float]] = {"beta": 1}
    profile: float = 0.5
    beta: float = 10_000

    def network(self, schema: Schema, table: str, ordered: Mapping[str, int]) -> Network:
        """Return what models a table of this name, given `ordered_codes` of its columns."""
        queried = schema.queried.pairs_within(table) if schema.queried else None
        return PairwiseSPN(ordered, beta=self.beta, leaf=PairwiseFit(queried=queried or None))

    def learn(self, schema: Schema, table: Table, price: Price) -> list[Step]:
        """Return the steps that learn the attributes of a private table."""
        return learn_steps(schema, table, price, self.profile, partial(self.network, schema, table.name))


class PrivBench:
    """The default synthesizer: leaves over several columns, with the joints that the budget supports. Pure and GDP."""

    name = "privbench"

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """See `Synthesizer.plan`."""
        chosen = SharedOptions.parse(options)
        return network_plan(self.name, schema, budget, chosen, partial(chosen.learn, schema), conditional_link)


def network_plan(name: str, schema: Schema, budget: Budget, options: LinkOptions, learn: Learn, link: LinkStep) -> Plan:
    """Return the plan with a model per table and a link per foreign key.

    Args:
        name: Of the synthesizer.
        schema: The database.
        budget: Of the whole plan.
        options: How it is shared out.
        learn: What learns a table.
        link: What measures a foreign key; the owner key of a table comes before its others.

    Raises:
        SpecError: Tables that cannot be sampled.
        UnsupportedBudgetError: Lists of values to learn without a δ.
    """
    prices = network_prices(schema, budget, options)
    steps = [step for table in schema.private_tables for step in learn(table, prices.tables[table.name])]
    keys = sorted(prices.links, key=lambda key: not key.owner)
    steps += [link(schema, key, prices.links[key]) for key in keys]
    return replace(whole_plan(name, schema, budget, steps, prices.validation), queried=schema.queried)


def network_prices(schema: Schema, budget: Budget, options: LinkOptions) -> Prices:
    """Return how a plan of networks divides a budget: γ to tables, the rest to keys, by numbers of attributes.

    What no query of a published workload touches counts less (`Queried`).
    """
    measuring, validation, deltas = divided(schema, budget, options.validation)
    keys = [key for table in schema.sampling_order if not table.public for key in table.foreign_keys]
    gamma = options.gamma if keys else 1.0
    tables = {table.name: _table_size(schema, table) for table in schema.private_tables}
    links, for_links = {key: _link_size(schema, key) for key in keys}, measuring.share(1 - gamma)
    return Prices(
        {
            name: measuring.share(gamma * size / sum(tables.values())).with_delta(deltas[name])
            for name, size in tables.items()
        },
        {key: for_links.share(size / sum(links.values())) for key, size in links.items()},
        validation,
    )


def conditional_link(schema: Schema, key: ForeignKey, price: Price) -> Step:
    """Return the step along a key where rows are drawn given what they refer to, or choose it by what they are.

    Rows of a junction table are linked as the relational synthesizer links them: who refers to what depends on the
    attributes of both parents, and its row may have none.
    """
    if key.owner:
        return fanout_step(schema, key, price)
    if completes_junction(schema, key):
        return reference_step(schema, key, price, LinkFit())
    return lookup_step(schema, key, price)


def fanout_step(schema: Schema, key: ForeignKey, price: Price, fit: Callable[..., Fanout] = fit_fanout) -> Step:
    """Return the step that measures the link along an ownership key, as ``fit`` does."""

    def run(context: StepContext) -> Artifact:
        fanout = fit(context.opened(), released_ownership(schema, key, context.inputs), price)
        summary = {
            "attributes that depend on the number of children": len(fanout.fanout_tables),
            "pair_tables": len(fanout.pair_tables),
        }
        return Artifact({"link": fanout.to_dict(), "summary": summary})

    return link_step(schema, key, price, run, PAIRS.identity())


def _table_size(schema: Schema, table: Table) -> float:
    """Weight of a table in sharing out γ: its attributes, and one for its rows."""
    if schema.queried is None:
        return 1 + len(table.attributes)
    return schema.queried.weight(table.name, (column.name for column in table.attributes))


def _link_size(schema: Schema, key: ForeignKey) -> float:
    """Weight of a key in sharing out 1 - γ: the attributes it may relate.

    Rows without attributes leave numbers of children to be measured, which cost the same as with other rows'
    attributes. In a junction table the owner's attributes are related to those of what it refers to.
    """
    table, parent = schema.table(key.child), schema.table(key.parent)
    own = len(table.attributes)
    weight = 1.0 if schema.queried is None else schema.queried.weight_of_key(key.name)
    if determined(schema, key):
        return weight * (1 + (own if key.optional else 0))
    if key.owner and not own:
        return weight * TUNING.degrees * (1 + len(parent.attributes))
    if table.owner_key is not None and completes_junction(schema, key):
        return weight * (1 + own + len(schema.table(table.owner_key.parent).attributes) + len(parent.attributes))
    return weight * (1 + own + (1 if parent.public else len(parent.attributes)))
