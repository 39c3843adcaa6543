"""Validate steps: integrity of a synthetic table as expectations, and the fidelity figures paid for before.

Free: integrity is a matter of the synthetic rows and the schema. How figures are judged is the spec's, see
`publishing.figures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from privbench_core.privacy.budget import Price
from privbench_core.publishing.figures import FidelityFigure
from privbench_core.sampling.ranges import stays_inside
from privbench_core.schema.identity import column_identity, constraints_identity, key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Step, StepContext, StepKind
from privbench_core.synthesizers.steps.link import fanout_key, released_fanout, released_profile
from privbench_core.synthesizers.steps.sample import sampled_key
from privbench_core.synthesizers.steps.sampled import SampledTable
from privbench_core.validate.derived import tables_to_check
from privbench_core.validate.ranges import check_ranges, check_whole


def validate_step(schema: Schema, table: Table, free: Price) -> Step:
    """Return the step that checks a table, public or private."""
    needed = tables_to_check(schema, table)
    inputs = [sampled_key(schema, schema.table(name)) for name in needed]
    if not table.public:
        inputs += [("fidelity", table.name), ("profile", table.name)]
    owner = [key for key in table.foreign_keys if key.owner]
    inputs += [fanout_key(key) for key in owner]

    def run(context: StepContext) -> Artifact:
        found = _integrity(schema, table, needed, context)
        if table.public:
            return Artifact({"expectations": found, "summary": {}})
        profile = released_profile(context.inputs, table.name)
        figures = context.inputs["fidelity", table.name].data["metrics"]
        released = {
            "figures": figures,
            "noise": profile.noise_in_words if profile.all_noise else "",
            "guessed": dict(profile.guessed),
            "made_up": profile.made_up,
            "constraints": [constraint.in_words for constraint in profile.constraints],
            "at_bound": {", ".join(key.columns): released_fanout(context.inputs, key).at_bound for key in owner},
        }
        shown = {figure["metric"]: str(FidelityFigure.from_dict(figure)) for figure in figures}
        return Artifact({"expectations": found, **released, "summary": shown})

    parameters: dict[str, Any] = {
        "columns": [column_identity(column) for column in table.columns],
        "primary key": list(table.primary_key),
        "unique": [list(columns) for columns in table.unique],
        "keys": [key_identity(key) for key in table.foreign_keys],
        **constraints_identity(table.checks, table.dependencies),
    }
    return Step(("validate", table.name), StepKind.VALIDATE, table.name, tuple(inputs), (), free, run, parameters, "6")


def _integrity(schema: Schema, table: Table, needed: Sequence[str], context: StepContext) -> list[dict[str, Any]]:
    sampled = {name: SampledTable(context.inputs[sampled_key(schema, schema.table(name))]) for name in needed}
    rows = _RangeRows(schema, table, sampled)
    ranges = len(sampled[table.name].rows)
    results = (
        check_whole(schema, table, rows.whole())
        if ranges == 1
        else check_ranges(schema, table, ranges, rows, rows.whole, context.workers)
    )
    return [{**asdict(result), "table": table.name} for result in results]


@dataclass(frozen=True)
class _RangeRows:
    """The rows that one range of a table is checked with.

    Its own, those of its owners' range, and the keys of parents that may be in any range, which a process reads once.
    Where keys stay within the unit: the rows of the same units, of all private tables that these are looked up in.
    """

    schema: Schema
    table: Table
    sampled: Mapping[str, SampledTable]
    _keys: dict[str, pa.Table] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, number: int) -> dict[str, pa.Table]:
        mine, owner = self.sampled[self.table.name].part(number), self.table.owner_key
        found = {self.table.name: mine.table}
        inside = [key for key in self.table.foreign_keys if key.same_unit]
        ends = {owner.parent} if owner is not None else set[str]()
        for name in {end for key in inside for end in (key.child, key.parent)}:
            ends |= {name, *(step.parent for step in self.schema.ownership_path(name))}
        anywhere = {
            key.parent
            for key in self.table.foreign_keys
            if not key.owner and not stays_inside(self.schema, self.table, key)
        }
        for name in self.sampled.keys() - found.keys():
            sampled = self.sampled[name]
            if name in anywhere or name not in ends:
                if name not in self._keys:
                    self._keys[name] = sampled.whole_rows(self._columns(name))
                found[name] = self._keys[name]
            elif inside:
                found[name] = sampled.of_units(np.asarray(mine.units)).table
            else:
                found[name] = sampled.part_rows(self.sampled[self.table.name].owners[number])
        return found

    def _columns(self, parent: str) -> list[str]:
        """Columns of a parent by which rows refer to it, and by which units are looked up."""
        owner = self.schema.table(parent).owner_key
        names = [name for key in self.table.foreign_keys if key.parent == parent for name in key.parent_columns]
        names += [] if owner is None else owner.columns
        for table in self.schema.tables:
            if (up := table.owner_key) is not None and up.parent == parent:
                names += up.parent_columns
        return list(dict.fromkeys(names))

    def whole(self) -> dict[str, pa.Table]:
        """Return all rows."""
        return {name: found.whole_rows() for name, found in self.sampled.items()}
