"""PrivLava's plan: latent attributes along every ownership key, children first, then the tables that own nobody's rows.

Algorithm 3 of the paper: private foreign keys in an order in which the groups of a table are modelled before its rows
are grouped themselves, so that latent attributes found below are columns of the tables above. Here these keys are the
owner keys; rows refer to further parents, private or public, by what is measured between their attributes, matched to
rows that are there already (`links.lookup`): a group along such a key has rows of many units, and no unit-wise type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from privbench_core.groups.group_model import GroupModel, Latents
from privbench_core.groups.measure_latent import LatentFit
from privbench_core.groups.measure_types import Columns, types_of
from privbench_core.links.fanout import Fanout
from privbench_core.marginals.measure_spn import PairwiseSPN
from privbench_core.marginals.measured import MeasuredLeaf
from privbench_core.marginals.spn import Leaf, Node, count_nodes, node_to_dict
from privbench_core.privacy.budget import Budget, Price, zero
from privbench_core.privacy.relations import deciding_tables, stability
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.measure_lags import lag_joints
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Plan, Step, StepContext, StepKind
from privbench_core.synthesizers.options import GroupOptions, group_prices
from privbench_core.synthesizers.steps.assemble import whole_plan
from privbench_core.synthesizers.steps.link import (
    counted_along,
    fanout_key,
    lookup_step,
    released_ownership,
    released_profile,
)
from privbench_core.synthesizers.steps.profile import profile_steps


@dataclass(frozen=True)
class Options(GroupOptions, LatentFit):
    """Public parameters in addition to the common ones; the names of the paper where it has them."""

    SHARES: ClassVar[frozenset[str]] = GroupOptions.SHARES | {"types", "groups", "observed", "places", "typed"}
    LEAST: ClassVar[Mapping[str, float]] = {"latents": 1, "iterations": 1}


class PrivLava:
    """Groups of children from latent attributes. GDP only (δ > 0)."""

    name = "privlava"

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """See `Synthesizer.plan`."""
        chosen = Options.parse(options)
        prices = group_prices(self.name, schema, budget, chosen)
        steps: list[Step] = []
        for table in schema.private_tables:
            price = prices.profile(table) if has_columns(schema, table) else prices.tables[table.name]
            steps += profile_steps(schema, table, price)
        for table in reversed(schema.sampling_order):
            if table.public:
                continue
            rest = prices.groups(table) if has_columns(schema, table) else None
            if table.owner_key is not None:
                steps.append(types_step(schema, table.owner_key, prices.links[table.owner_key], rest, chosen))
            if table.owner_key is None and rest is not None:
                steps.append(root_step(schema, table, rest))
            else:
                steps.append(drawn_step(schema, table, zero(prices.validation.measure)))
            steps += [lookup_step(schema, key, prices.links[key]) for key in table.foreign_keys if not key.owner]
        return whole_plan(self.name, schema, budget, steps, prices.validation)


def owned_keys(schema: Schema, table: str) -> list[ForeignKey]:
    """Return the owner keys that refer to a table."""
    keys = (other.owner_key for other in schema.private_tables)
    return [key for key in keys if key is not None and key.parent == table]


def has_columns(schema: Schema, table: Table) -> bool:
    """Return whether a table's rows have attributes, or own others and so may have latent attributes."""
    return bool(table.attributes) or any(
        has_columns(schema, schema.table(key.child)) for key in owned_keys(schema, table.name)
    )


def below(schema: Schema, table: str) -> list[str]:
    """Return the tables whose rows the rows of a table own, directly or by way of others."""
    return [name for key in owned_keys(schema, table) for name in (key.child, *below(schema, key.child))]


def column_inputs(schema: Schema, table: str) -> tuple[Key, ...]:
    """Return the keys of the steps that release the columns of a table, latent ones included."""
    keys: list[Key] = [("profile", table)]
    for key in owned_keys(schema, table):
        keys += [fanout_key(key), *column_inputs(schema, key.child)]
    return tuple(dict.fromkeys(keys))


def table_columns(schema: Schema, table: str, inputs: Mapping[Key, Artifact]) -> Columns:
    """Return the columns of a table, from the artifacts of `column_inputs`."""
    columns = Columns.of(released_profile(inputs, table))
    for key in owned_keys(schema, table):
        released = inputs[fanout_key(key)].data
        if released["latents"] is not None:
            latents = Latents.from_dict(released["latents"])
            sizes = Fanout.from_dict(released["link"]).sizes
            scores = latents.size_scores, latents.scores
            types = types_of(latents.shape, scores, sizes, table_columns(schema, key.child, inputs))
            columns = columns.with_latents(key, latents, types)
    return columns


def types_step(schema: Schema, key: ForeignKey, for_sizes: Price, for_groups: Price | None, fit: LatentFit) -> Step:
    """Return the step that measures groups along an owner key: sizes, marginals, latent attributes (Algorithm 2)."""
    price = for_sizes if for_groups is None else for_sizes + for_groups

    def run(context: StepContext) -> Artifact:
        children = table_columns(schema, key.child, context.inputs)
        ownership = released_ownership(schema, key, context.inputs)
        found = fit.link(context.opened(), ownership, children, for_sizes, for_groups)
        values = [] if found.latents is None else [size - 1 for size in found.latents.shape]
        groups = isinstance(found.measured, GroupModel)
        return Artifact(
            {
                "link": found.fanout.to_dict(),
                "latents": None if found.latents is None else found.latents.to_dict(),
                "groups" if groups else "measured": found.measured.to_dict(),
                "summary": {"latent values": values},
            }
        )

    others = counted_along(schema, key)
    inputs = (*column_inputs(schema, key.child), ("profile", key.parent), *map(fanout_key, others))
    looked_at = (*below(schema, key.child), *(other.child for other in others))
    reads = deciding_tables(schema, key.child, key.parent, *looked_at)
    moves = [stability(schema, name, *below(schema, name)) for name in (key.child, key.parent)]
    parameters = {"key": key_identity(key), "fit": fit.identity(), "stability": moves}
    return Step(fanout_key(key), StepKind.FANOUT, key.child, inputs, reads, price, run, parameters, version="16")


def drawn_step(schema: Schema, table: Table, free: Price) -> Step:
    """Return the step that fits the model of a table's rows to what was measured along its owner key, at no cost.

    A table without owner and columns has nothing to fit: its rows are numbers. A model of groups is fitted already.
    """
    key = table.owner_key
    inputs = column_inputs(schema, table.name) if key is None else (*column_inputs(schema, table.name), fanout_key(key))

    def run(context: StepContext) -> Artifact:
        columns = table_columns(schema, table.name, context.inputs)
        if key is None:
            return _model(columns, Leaf(columns.one_way.total, {}))
        released = context.inputs[fanout_key(key)].data
        if "groups" in released:
            return Artifact({"model": released["groups"], "latents": [], "summary": {}})
        return _model(columns, MeasuredLeaf.from_dict(released["measured"]).fit())

    return Step(("model", table.name), StepKind.MODEL, table.name, inputs, (), free, run, version="5")


def root_step(schema: Schema, table: Table, price: Price) -> Step:
    """Return the step that models a table without owner, with the latent attributes of what it owns (section 4.4)."""

    def run(context: StepContext) -> Artifact:
        columns = table_columns(schema, table.name, context.inputs)
        view = ViewSpec(table.name, columns.features, (columns.rows_per_unit,))
        network = PairwiseSPN(columns.ordered)
        profile = released_profile(context.inputs, table.name)
        measured = network.build(context.opened().view(view, "rows"), columns.one_way, price, lag_joints(profile))
        return _model(columns, measured.fit())

    reads = deciding_tables(schema, table.name, *below(schema, table.name))
    moves = stability(schema, table.name, *below(schema, table.name))
    parameters = {**PairwiseSPN({}).identity(), "stability": moves}
    inputs = column_inputs(schema, table.name)
    return Step(("model", table.name), StepKind.MODEL, table.name, inputs, reads, price, run, parameters, version="4")


def _model(columns: Columns, node: Node) -> Artifact:
    """Return a model, and its columns that are latent."""
    latents = [[name, columns.sources[name][1].size] for name in columns.types]
    return Artifact({"model": node_to_dict(node), "latents": latents, "summary": count_nodes(node)})
