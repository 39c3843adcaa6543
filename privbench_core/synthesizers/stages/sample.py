"""Sample steps: a synthetic table from released models, or a public table as it is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from privbench_core.linking.fanout import Fanout
from privbench_core.linking.lookup import Lookup
from privbench_core.models.nodes import node_from_dict
from privbench_core.privacy.budget import Price, zero
from privbench_core.sampling.table import Drawn, Parent, draw_children, draw_root, draw_table
from privbench_core.schema.model import ForeignKey, Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind
from privbench_core.synthesizers.stages.profile import Profile


def fanout_key(key: ForeignKey) -> Key:
    """Key of the step that models a foreign key."""
    return ("fanout", key.name)


def public_step(table: Table, free: Price) -> Step:
    """The step that publishes a public table as it is."""

    def run(context: StepContext) -> Artifact:
        return Artifact({"summary": {}}, context.public[table.name])

    return Step(("sample", table.name), StepKind.SAMPLE, table.name, (), (), free, run, {"table": table.name})


def sample_step(schema: Schema, table: Table, price: Price) -> Step:
    """The step that draws a private table; ``price`` only tells the currency in which it costs nothing."""
    parents = sorted({key.parent for key in table.foreign_keys})
    inputs: list[Key] = [("profile", table.name), ("model", table.name)]
    inputs += [fanout_key(key) for key in table.foreign_keys]
    inputs += [("sample", name) for name in parents]
    inputs += [("profile", name) for name in parents if not schema.table(name).public]

    def run(context: StepContext) -> Artifact:
        drawn = _draw(schema, table, context)
        rows = drawn.table.num_rows
        weights = _weights(table, drawn, context)
        data = {"parents": [[n, p] for n, p in drawn.parents.items()], "weights": weights, "summary": {"rows": rows}}
        return Artifact(data, drawn.table)

    parameters = {"keys": repr(table.foreign_keys), "unique": repr((table.primary_key, table.unique))}
    key = ("sample", table.name)
    free = zero(price.measure)
    return Step(key, StepKind.SAMPLE, table.name, tuple(inputs), (), free, run, parameters, depends=("seed", "scale"))


def parent_of(name: str, schema: Schema, inputs: Mapping[Key, Artifact]) -> Parent:
    """A synthetic parent, with its attributes coded as its children's context."""
    sample = inputs["sample", name]
    if sample.table is None or schema.table(name).public:
        assert sample.table is not None  # noqa: S101 - a sample step always stores rows
        return Parent(sample.table, {}, {}, None)
    profile = Profile.from_dict(inputs["profile", name].data["profile"])
    codes = {column: coder.encode(sample.table.column(column)) for column, coder in profile.coders.items()}
    sizes = {column: coder.size for column, coder in profile.coders.items()}
    return Parent(sample.table, codes, sizes, sample.data["weights"])


def _draw(schema: Schema, table: Table, context: StepContext) -> Drawn:
    rng = context.rng("sample", table.name)
    profile = Profile.from_dict(context.inputs["profile", table.name].data["profile"])
    model = node_from_dict(context.inputs["model", table.name].data["model"])
    parents = {key.parent: parent_of(key.parent, schema, context.inputs) for key in table.foreign_keys}
    links = {key.name: context.inputs[fanout_key(key)].data["link"] for key in table.foreign_keys}
    lookups = {key.name: Lookup.from_dict(links[key.name]) for key in table.foreign_keys if not key.owner}
    owner = table.owner_key
    if owner is None:
        rows, owners = draw_root(profile.total, context.scale), None
    else:
        rows, owners = draw_children(Fanout.from_dict(links[owner.name]), parents[owner.parent], rng)
    return draw_table(table, rows, model, profile.coders, owners, parents, lookups, rng)


def _weights(table: Table, drawn: Drawn, context: StepContext) -> NDArray[np.float64] | None:
    """Weight of each synthetic row in the measure of its model: 1/(product of group sizes along its path)."""
    owner = table.owner_key
    if owner is None:
        return None
    places = drawn.parents[owner.name]
    above = context.inputs["sample", owner.parent].data["weights"]
    inherited = np.ones(len(places)) if above is None else above[places]
    return np.asarray(inherited / np.bincount(places)[places] if len(places) else inherited, dtype=float)
