"""Model steps: a table's attributes by themselves, as a sum-product network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from privbench_core.domain.coder import ordered_codes
from privbench_core.models.nodes import Leaf, Node, count_nodes, node_to_dict
from privbench_core.models.pairwise import OneWay
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.relations import deciding_tables
from privbench_core.privacy.views import Own, ViewSpec
from privbench_core.schema.model.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind
from privbench_core.synthesizers.stages.profile import Profile

Grow = Callable[[StepContext, Curator, OneWay, Mapping[str, int]], Node]
"""(context, view of the table's attributes, their one-way marginals, `ordered_codes`) -> network."""


def model_step(schema: Schema, table: Table, price: Price, grow: Grow, parameters: Mapping[str, Any]) -> Step:
    """The step that grows a network over a table's attributes; a table of keys alone has nothing to model.

    Args:
        schema: The database.
        table: The table.
        price: Zero for a table without attributes.
        grow: Spends at most the price.
        parameters: All that its result depends on beside the rows, JSON-able.
    """
    profile_of: Key = ("profile", table.name)

    def run(context: StepContext) -> Artifact:
        profile = Profile.from_dict(context.inputs[profile_of].data["profile"])
        node: Node = Leaf(profile.total, {})
        if table.attributes:
            features = {name: (Own(name), coder) for name, coder in profile.coders.items()}
            view = context.opened().view(ViewSpec(table.name, dict(features)), "spn")
            node = grow(context, view, profile.one_way, ordered_codes(profile.coders))
        return Artifact({"model": node_to_dict(node), "summary": count_nodes(node)})

    reads = deciding_tables(schema, table.name) if table.attributes else ()
    own = {**parameters, "keys": repr(table.foreign_keys)}
    return Step(("model", table.name), StepKind.MODEL, table.name, (profile_of,), reads, price, run, own, version="2")
