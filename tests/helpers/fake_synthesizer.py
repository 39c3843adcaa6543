"""A synthesizer small enough to run whole pipelines in a moment: it learns how many rows there are, and draws nonsense.

It has every kind of step, a price per private table, and expectations that a test can make fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from privbench_core.columns.registry import codec_for
from privbench_core.errors import InternalError
from privbench_core.privacy.budget import Budget, zero
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.views import ViewSpec
from privbench_core.publishing import write_bundle
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Plan, Step, StepContext, StepKind


@dataclass
class FakeSynthesizer:
    """Made for one test.

    Attributes:
        name: As a spec calls it.
        runs: Key of every step that ran, in order.
        broken: Keys of steps that raise, and what.
        once: Keys of steps that raise the next time they run.
        during: What happens elsewhere while a step runs, the next time.
        versions: Of the code of some steps, which have "1" else.
        fails: Tables of which an expectation does not hold.
        most: Rows of a table that are drawn, at most.
        charted: Whether the profile of persons is shown as a bar chart, which takes longer than all else.
        draws: Looks at private rows so far; part of what each leaves behind, because noise may repeat itself.
    """

    name: str = "fake"
    runs: list[Key] = field(default_factory=list)
    broken: dict[Key, Exception] = field(default_factory=dict)
    once: set[Key] = field(default_factory=set)
    during: dict[Key, Callable[[], None]] = field(default_factory=dict)
    versions: dict[Key, str] = field(default_factory=dict)
    fails: set[str] = field(default_factory=set)
    most: int = 1_000_000
    charted: bool = False
    draws: int = 0
    _columns: dict[str, Any] = field(default_factory=dict)

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """Profile and model each private table, link the keys, sample, validate and publish all."""
        tables = schema.private_tables
        self._columns = {table.name: table.columns for table in tables}
        free, price = zero(budget.measure), budget.total().share(1 / (2 * len(tables)))
        steps: list[Step] = []
        for table in tables:
            name = table.name
            steps.append(self._step(("profile", name), StepKind.PROFILE, name, (), (name,), price, self._profile))
            steps.append(
                self._step(("model", name), StepKind.MODEL, name, (("profile", name),), (name,), price, self._model)
            )
        for table in tables:
            for key in table.foreign_keys:
                both = (("model", key.parent), ("model", table.name))
                steps.append(self._step(("fanout", key.name), StepKind.FANOUT, table.name, both, (), free, _nothing))
        samples = []
        for table in tables:
            before = [("model", table.name), *(("fanout", key.name) for key in table.foreign_keys)]
            step = self._step(
                ("sample", table.name), StepKind.SAMPLE, table.name, tuple(before), (), free, self._sample(table)
            )
            steps.append(step)
            samples.append(step.key)
        last = self._step(("validate", "all"), StepKind.VALIDATE, "", tuple(samples), (), free, self._validate(schema))
        publish = self._step(
            ("publish", "bundle"), StepKind.PUBLISH, "", (*samples, last.key), (), free, _publish(schema)
        )
        return Plan(self.name, budget, (*steps, last, publish))

    def _step(self, key: Key, kind: StepKind, table: str, inputs: Any, reads: Any, price: Any, work: Any) -> Step:
        def run(context: StepContext) -> Artifact:
            self.runs.append(key)
            if key in self.broken:
                raise self.broken[key]
            if key in self.once:
                self.once.remove(key)
                raise ValueError(key)
            if key in self.during:
                self.during.pop(key)()
            artifact: Artifact = work(context)
            return artifact

        depends = ("seed", "scale") if kind is StepKind.SAMPLE else ()
        parameters = {"columns": repr(self._columns[reads[0]])} if reads else {}
        version = self.versions.get(key, "1")
        return Step(key, kind, table, inputs, reads, price, run, parameters, version, depends)

    def _profile(self, context: StepContext) -> Artifact:
        rows, table = self._count(context), self.runs[-1][1]
        bars = {"size": {"labels": ["all"], "counts": [rows]}} if self.charted and table == "person" else {}
        return Artifact({"rows": rows, "draw": self.draws, "summary": {"noisy rows": np.float64(rows), "bars": bars}})

    def _model(self, context: StepContext) -> Artifact:
        summary = {"nodes": 1, "of": {"kind": "constant"}}
        return Artifact({"rows": self._count(context), "draw": self.draws, "summary": summary})

    def _count(self, context: StepContext) -> float:
        session = context.opened()
        view = session.view(ViewSpec(self.runs[-1][1], {}))
        self.draws += 1
        return float(view.measure("rows", [Marginal(())], session.budget).values[0])

    def _sample(self, table: Table) -> Any:
        def sample(context: StepContext) -> Artifact:
            model = context.inputs["model", table.name].data
            rows = min(self.most, max(1, int(model["rows"] * context.scale)))
            return Artifact({"draw": model["draw"]}, _rows(table, rows, context.rng(table.name)))

        return sample

    def _validate(self, schema: Schema) -> Any:
        def validate(_: StepContext) -> Artifact:
            outcomes = [
                {
                    "name": "expect_something",
                    "column": table.primary_key[0],
                    "success": table.name not in self.fails,
                    "unexpected_count": int(table.name in self.fails),
                    "table": table.name,
                }
                for table in schema.private_tables
            ]
            return Artifact({"expectations": outcomes})

        return validate


def _nothing(context: StepContext) -> Artifact:
    return Artifact({"of": sorted("/".join(key) for key in context.inputs)})


def _rows(table: Table, rows: int, rng: np.random.Generator) -> pa.Table:
    made = {}
    for column in table.columns:
        if column.name in table.key_columns:
            values: Any = pa.array(np.arange(rows) if column.name in table.primary_key else np.zeros(rows, int)).cast(
                column.arrow_type
            )
        else:
            codec = codec_for(column)
            values = codec.decode(rng.integers(0, codec.size, rows).astype(np.int32), rng)
        made[column.name] = values
    return pa.table(made)


def _publish(schema: Schema) -> Any:
    def publish(context: StepContext) -> Artifact:
        if context.out is None:
            raise InternalError("no place to publish to")
        tables = {key[1]: artifact.table for key, artifact in context.inputs.items() if artifact.table is not None}
        write_bundle(context.out, schema, tables, context.receipt)
        return Artifact({"tables": sorted(tables)})

    return publish
