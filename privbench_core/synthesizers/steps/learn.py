"""Steps that learn a table: one measures all that is asked of it, one fits a network to that at no cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from privbench_core.measure.table import Network, learn_table
from privbench_core.models.measured import measured_from_dict, measured_to_dict
from privbench_core.models.spn import count_nodes, node_to_dict
from privbench_core.privacy.budget import Price, zero
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind
from privbench_core.synthesizers.steps.profile import measured_step, summary_of

Networks = Callable[[StepContext, Mapping[str, int]], Network]
"""(context, `ordered_codes` of the columns) -> network."""


def learn_steps(
    schema: Schema, table: Table, price: Price, first: float, networks: Networks, parameters: Mapping[str, Any]
) -> list[Step]:
    """Return the profile step, which measures a private table, and the model step, which fits a network to that.

    Args:
        schema: The database.
        table: The table.
        price: Of the profile step; fitting costs nothing.
        first: Share of the price for the first look at one-way marginals.
        networks: What models the attributes.
        parameters: All that networks depend on beside the rows, JSON-able.
    """

    def learn(context: StepContext) -> Artifact:
        session = context.opened()
        bound = schema.max_rows_per_unit(table.name)
        cells, profile, measured = learn_table(
            session, table, bound, price, first, lambda ordered: networks(context, ordered)
        )
        released = {"profile": profile.to_dict(), "measured": measured_to_dict(measured)}
        return Artifact({**released, "summary": summary_of(table, profile, cells)})

    profile_of: Key = ("profile", table.name)

    def fit(context: StepContext) -> Artifact:
        node = measured_from_dict(context.inputs[profile_of].data["measured"]).fit()
        return Artifact({"model": node_to_dict(node), "summary": count_nodes(node)})

    free = zero(price.measure)
    return [
        measured_step(schema, table, price, learn, {**parameters, "first": first}),
        Step(("model", table.name), StepKind.MODEL, table.name, (profile_of,), (), free, fit, version="3"),
    ]
