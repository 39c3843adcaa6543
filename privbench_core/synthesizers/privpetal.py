"""PrivPetal's plan: who owns nobody first, then sizes of groups, then the groups themselves, along every ownership key.

Algorithm 4 of the paper goes through the private foreign keys in topological order and runs Algorithm 1 for each. Here
a table has one ownership key, along which its rows are drawn as groups; rows refer to further parents, private or
public, by what is measured between their attributes, matched to rows that are drawn already (`links.lookup`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from privbench_core.groups.measure_groups import GroupFit
from privbench_core.links.fanout import Fanout
from privbench_core.links.measure_fanout import Ownership, fit_sizes_and_siblings
from privbench_core.privacy.budget import Budget, Price
from privbench_core.privacy.relations import deciding_tables, stability
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Plan, Step, StepContext, StepKind
from privbench_core.synthesizers.options import GroupOptions, group_prices
from privbench_core.synthesizers.privbench import SharedOptions, fanout_step
from privbench_core.synthesizers.steps.assemble import whole_plan
from privbench_core.synthesizers.steps.link import fanout_key, lookup_step, released_fanout, released_profile
from privbench_core.synthesizers.steps.profile import profile_steps


@dataclass(frozen=True)
class Options(GroupOptions, GroupFit):
    """Public parameters in addition to the common ones; the names of the paper where it has them.

    Attributes:
        root_profile: Share of the budget of a table without owner for a first measurement of its one-way marginals;
            what its joints do not need goes to these too.
    """

    SHARES: ClassVar[frozenset[str]] = GroupOptions.SHARES | {"scores", "margins", "triples", "root_profile"}
    root_profile: float = 0.5


class PrivPetal:
    """Groups of children from permutation relations. GDP only (δ > 0)."""

    name = "privpetal"

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """See `Synthesizer.plan`."""
        chosen = Options.parse(options)
        prices = group_prices(self.name, schema, budget, chosen)
        network = SharedOptions(profile=chosen.root_profile)  # the house model in the role of the paper's PrivMRF
        steps: list[Step] = []
        for table in schema.private_tables:
            if _has_groups(table):
                steps += profile_steps(schema, table, prices.profile(table))
            else:  # tables of keys alone, too
                steps += network.learn(schema, table, prices.tables[table.name])
        for table in schema.sampling_order:
            for key in sorted(() if table.public else table.foreign_keys, key=lambda key: not key.owner):
                price = prices.links[key]
                steps.append(fanout_step(schema, key, price, _sizes) if key.owner else lookup_step(schema, key, price))
                if key.owner and _has_groups(table):
                    steps.append(groups_step(schema, key, prices.groups(table), chosen))
        return whole_plan(self.name, schema, budget, steps, prices.validation)


def _sizes(*how: Any) -> Fanout:
    """Measure how many children owners have, given their attributes, and how long after these."""
    return fit_sizes_and_siblings(*how)[0]


def _has_groups(table: Table) -> bool:
    return table.owner_key is not None and bool(table.attributes)


def groups_step(schema: Schema, key: ForeignKey, price: Price, fit: GroupFit) -> Step:
    """Return the step that measures the groups along an ownership key: the model of the children's attributes."""

    def run(context: StepContext) -> Artifact:
        parent, child = (released_profile(context.inputs, name) for name in (key.parent, key.child))
        fanout = released_fanout(context.inputs, key)
        members = fit.fit(context.opened(), Ownership(key, parent, child), fanout, price)
        measured = [
            len(group.within) + len(group.above) + len(group.between) + len(group.triples) for group in members.classes
        ]
        summary = {"classes of group sizes": len(members.classes), "marginals measured in a class": measured}
        return Artifact({"model": members.to_dict(), "summary": summary})

    reads = deciding_tables(schema, key.child, key.parent)
    parameters = {"key": key_identity(key), "fit": fit.identity(), "stability": stability(schema, key.child)}
    inputs: tuple[Key, ...] = (("profile", key.child), ("profile", key.parent), fanout_key(key))
    return Step(("model", key.child), StepKind.MODEL, key.child, inputs, reads, price, run, parameters, version="9")
