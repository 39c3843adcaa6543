"""Sample steps: a synthetic table from released models, or a public table as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.errors import InternalError
from privbench_core.linking.fanout import Fanout
from privbench_core.linking.lookup import Lookup
from privbench_core.models.nodes import node_from_dict
from privbench_core.privacy.budget import Price
from privbench_core.sampling.table import Parent, draw_children, draw_root, draw_table
from privbench_core.schema.model import ForeignKey, Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind
from privbench_core.synthesizers.stages.profile import Profile


@dataclass(frozen=True)
class Sample:
    """A synthetic (or public) table.

    Attributes:
        table: Its rows.
        parents: Foreign key name -> row number of each row's parent, -1 for NULL.
        weights: Weight of each row in the measure of its model, 1/(product of group sizes); None where all count alike.
    """

    table: pa.Table
    parents: Mapping[str, NDArray[np.int64]]
    weights: NDArray[np.float64] | None

    def to_artifact(self) -> Artifact:
        """As a step stores it."""
        places = [[name, rows] for name, rows in self.parents.items()]
        summary = {"rows": self.table.num_rows}
        return Artifact({"parents": places, "weights": self.weights, "summary": summary}, self.table)

    @classmethod
    def from_artifact(cls, stored: Artifact) -> Sample:
        """The inverse of `to_artifact`."""
        if stored.table is None:
            raise InternalError("a sample was stored without its rows")
        return cls(stored.table, dict(stored.data["parents"]), stored.data["weights"])


def fanout_key(key: ForeignKey) -> Key:
    """Key of the step that models a foreign key."""
    return ("fanout", key.name)


def model_inputs(schema: Schema, table: Table) -> list[Key]:
    """The released models that a sample of ``table`` is drawn from."""
    parents = sorted({key.parent for key in table.foreign_keys})
    inputs: list[Key] = [("profile", table.name), ("model", table.name)]
    inputs += [fanout_key(key) for key in table.foreign_keys]
    return inputs + [("profile", name) for name in parents if not schema.table(name).public]


def public_step(table: Table, free: Price) -> Step:
    """The step that publishes a public table as it is."""

    def run(context: StepContext) -> Artifact:
        return Sample(context.public[table.name], {}, None).to_artifact()

    return Step(("sample", table.name), StepKind.SAMPLE, table.name, (), (), free, run, {"table": table.name})


def sample_step(schema: Schema, table: Table, free: Price) -> Step:
    """The step that draws a private table."""
    parents = sorted({key.parent for key in table.foreign_keys})
    inputs: list[Key] = [*model_inputs(schema, table), *(("sample", name) for name in parents)]

    def run(context: StepContext) -> Artifact:
        above = {name: Sample.from_artifact(context.inputs["sample", name]) for name in parents}
        rng = context.rng("sample", table.name)
        return draw_sample(schema, table, context.inputs, above, context.scale, rng).to_artifact()

    parameters = {"keys": repr(table.foreign_keys), "unique": repr((table.primary_key, table.unique))}
    key = ("sample", table.name)
    return Step(key, StepKind.SAMPLE, table.name, tuple(inputs), (), free, run, parameters, depends=("seed", "scale"))


def draw_sample(
    schema: Schema,
    table: Table,
    inputs: Mapping[Key, Artifact],
    above: Mapping[str, Sample],
    scale: float,
    rng: np.random.Generator,
) -> Sample:
    """Draw a private table from released models.

    Args:
        schema: The database.
        table: The table to draw.
        inputs: Artifacts of `model_inputs`.
        above: Samples of the parents, by table name.
        scale: Of the unit's table; owned tables follow their parents.
        rng: Sampling only.
    """
    profile = Profile.from_dict(inputs["profile", table.name].data["profile"])
    model = node_from_dict(inputs["model", table.name].data["model"])
    parents = {name: _as_parent(schema, name, sample, inputs) for name, sample in above.items()}
    links = {key.name: inputs[fanout_key(key)].data["link"] for key in table.foreign_keys}
    lookups = {key.name: Lookup.from_dict(links[key.name]) for key in table.foreign_keys if not key.owner}
    owner = table.owner_key
    if owner is None:
        rows, owners = draw_root(profile.total, scale), None
    else:
        rows, owners = draw_children(Fanout.from_dict(links[owner.name]), parents[owner.parent], rng)
    drawn = draw_table(table, rows, model, profile.coders, owners, parents, lookups, rng)
    if owner is None:
        return Sample(drawn.table, drawn.parents, None)
    places = drawn.parents[owner.name]
    weights = above[owner.parent].weights
    inherited = np.ones(len(places)) if weights is None else weights[places]
    return Sample(drawn.table, drawn.parents, inherited / np.bincount(places, minlength=1)[places])


def _as_parent(schema: Schema, name: str, sample: Sample, inputs: Mapping[Key, Artifact]) -> Parent:
    """A synthetic parent, with its attributes coded as its children's context."""
    if schema.table(name).public:
        return Parent(sample.table, {}, {}, None)
    profile = Profile.from_dict(inputs["profile", name].data["profile"])
    codes = {column: coder.encode(sample.table.column(column)) for column, coder in profile.coders.items()}
    sizes = {column: coder.size for column, coder in profile.coders.items()}
    return Parent(sample.table, codes, sizes, sample.weights)
