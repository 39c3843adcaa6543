"""Table synthesizers: methods that model one table by itself, found by entry point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from privbench_core.marginals.measured import MeasuredLeaf
from privbench_core.marginals.one_way import OneWay
from privbench_core.marginals.spn import node_to_dict
from privbench_core.privacy.budget import Price, zero
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.relations import deciding_tables, stability
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind, installed, structure_rng
from privbench_core.synthesizers.privbench import SharedOptions
from privbench_core.synthesizers.privspn import Options as PrivSPNOptions
from privbench_core.synthesizers.steps.link import released_profile
from privbench_core.synthesizers.steps.profile import profile_steps

GROUP = "privbench.tables"


class TableSynthesizer(Protocol):
    """A method for single tables: an object with these three, named by an entry point of the group `GROUP`.

    Attributes:
        joints: Whether it converges to joint distributions as the budget grows.
    """

    joints: bool

    def steps(self, schema: Schema, table: Table, price: Price) -> list[Step]:
        """Return the steps ("count", table), ("profile", table) and ("model", table), for at most ``price`` together.

        The model knows nothing of other tables; it draws rows without context. `fitted_steps` makes these steps of a
        function that fits a model.
        """
        ...


class TableFit(Protocol):
    """What `fitted_steps` needs of a method."""

    def identity(self) -> Mapping[str, Any]:
        """Return all that a release depends on other than rows and price, JSON-able."""
        ...

    def fit(self, curator: Curator, one_way: OneWay, price: Price, rng: np.random.Generator) -> Mapping[str, Any]:
        """Return the stored form of a model (`stored.Storable`), for at most ``price``.

        Args:
            curator: Of the table's coded rows: columns and their sizes are those of ``one_way``.
            one_way: Released counts.
            price: What the curator may be asked for in all.
            rng: For structure; not privacy noise, and the same in every run.
        """
        ...


def fitted_steps(schema: Schema, table: Table, price: Price, method: TableFit) -> list[Step]:
    """Return the shared first steps for half of the price, and the step that fits a method's model for the rest.

    A table of keys alone has no attributes to model, so it is `Independent`.
    """
    if not table.attributes:
        return Independent().steps(schema, table, price)
    profile: Key = ("profile", table.name)
    own = Price(price.measure, price.amount / 2)

    def run(context: StepContext) -> Artifact:
        released = released_profile(context.inputs, table.name)
        view = context.opened().view(ViewSpec(table.name, released.own(), (released.size.rows_per_unit,)), "model")
        fitted = method.fit(view, released.one_way, own, structure_rng(table.name))
        return Artifact({"model": dict(fitted), "summary": {}})

    first = profile_steps(schema, table, replace(price, amount=price.amount - own.amount))
    parameters = {"method": dict(method.identity()), "stability": stability(schema, table.name)}
    reads = deciding_tables(schema, table.name)
    return [*first, Step(("model", table.name), StepKind.MODEL, table.name, (profile,), reads, own, run, parameters)]


class Pairwise:
    """PrivBench's networks, with leaves over several columns and their pairwise joints."""

    joints = True

    def steps(self, schema: Schema, table: Table, price: Price) -> list[Step]:
        """See `TableSynthesizer.steps`."""
        return SharedOptions().learn(schema, table, price)


class SumProduct:
    """PrivSPN as published: binary networks down to one histogram per column."""

    joints = False

    def steps(self, schema: Schema, table: Table, price: Price) -> list[Step]:
        """See `TableSynthesizer.steps`."""
        return PrivSPNOptions(alpha=0.5).learn(schema, table, price)


class Independent:
    """One-way marginals alone."""

    joints = False

    def steps(self, schema: Schema, table: Table, price: Price) -> list[Step]:
        """See `TableSynthesizer.steps`."""
        profile: Key = ("profile", table.name)

        def run(context: StepContext) -> Artifact:
            released = released_profile(context.inputs, table.name)
            return Artifact({"model": node_to_dict(MeasuredLeaf(released.one_way).fit()), "summary": {}})

        free = zero(price.measure)
        model = Step(("model", table.name), StepKind.MODEL, table.name, (profile,), (), free, run, version="3")
        return [*profile_steps(schema, table, price), model]


def table_synthesizers() -> tuple[str, ...]:
    """Return the names of all installed table synthesizers."""
    return tuple(sorted(point.name for point in installed(GROUP)))


def load_table_synthesizer(name: str) -> TableSynthesizer:
    """Return a new instance of the table synthesizer called ``name``, which is one of `table_synthesizers`."""
    made: TableSynthesizer = installed(GROUP)[name].load()()
    return made
