"""The last steps. Validate: integrity of a synthetic table as expectations, and the fidelity figures paid for before.

Free: integrity is a matter of the synthetic rows and the schema. How figures are judged is the spec's, see
`publishing.verdicts`. Publish: the tables, the schema, the receipt and perhaps a workload, as one folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from privbench_core.errors import InternalError, ValidationError
from privbench_core.privacy.budget import Price
from privbench_core.profiles.expected_noise import link_noise
from privbench_core.publishing import read_bundle, write_bundle
from privbench_core.publishing.table_files import RowRanges, write_table
from privbench_core.publishing.verdicts import FidelityFigure, blocking, judge_tables, lost_in
from privbench_core.sampling.keys import added_by, as_added
from privbench_core.sampling.ranges import stays_inside
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.identity import column_identity, constraints_identity, key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind
from privbench_core.synthesizers.steps.link import bounds_references, fanout_key, released_fanout, released_profile
from privbench_core.synthesizers.steps.sample import sampled_key
from privbench_core.synthesizers.steps.sampled import SampledTable
from privbench_core.validate.derived import tables_to_check
from privbench_core.validate.ranges import check_ranges, check_whole

_RULE = (
    "literals were chosen so that each comparison has on these rows the selectivity that the released noisy one-way "
    "marginals give for the original. Key values, placeholders, hidden constants and all that statements write are "
    "those of random rows here. "
    "Constants on public tables are unchanged. Only public text, released measurements and synthetic rows were used, "
    "so this cost no budget"
)


def publish_step(schema: Schema, free: Price, links: Mapping[ForeignKey, Step]) -> Step:
    """Return the step that writes the bundle; a workload is re-bound to the synthetic rows.

    The executor does not run it after a validate step whose expectations do not hold. It says which of ``links``, the
    steps of keys off the ownership path, paid so little that noise hides what they measure.
    """
    inputs: list[Key] = [sampled_key(schema, table) for table in schema.tables]
    inputs += [("validate", table.name) for table in schema.tables]
    inputs += [("profile", table.name) for table in schema.private_tables]

    def run(context: StepContext) -> Artifact:
        if context.out is None:
            raise InternalError("publish: no folder to write to")
        sampled = {table.name: SampledTable(context.inputs[sampled_key(schema, table)]) for table in schema.tables}
        validated = {table.name: context.inputs["validate", table.name].data for table in schema.private_tables}
        sizes = {name: released_profile(context.inputs, name).size for name in validated}
        noises = [
            link_noise(schema, key, step.price, sizes[key.child], bounded=bounds_references(step))
            for key, step in links.items()
        ]
        hidden = [str(noise) for noise in noises if noise.all_noise]
        if reasons := [*blocking(validated, context.fidelity), *(hidden if context.fidelity.block else ())]:
            raise ValidationError(f"nothing is published, because fidelity blocks: {'; '.join(reasons)}")
        figures = {
            name: [FidelityFigure.from_dict(figure).receipt for figure in data["figures"]]
            for name, data in validated.items()
        }
        verdicts = [verdict.to_dict() for verdict in judge_tables(validated, context.fidelity)]
        lost = [*hidden, *lost_in(validated)]
        fidelity = {"fidelity_verdicts": verdicts, "fidelity_lost": lost, "fidelity_paid_for": figures}
        receipt = {**context.receipt, **fidelity}
        if kept := {name: data["constraints"] for name, data in validated.items() if data["constraints"]}:
            receipt["constraints"] = kept
        queries, replay, noted = _workload(context, schema, sampled)
        if noted:
            receipt["workload"] = noted
        ranges = {
            name: RowRanges(len(found.rows), partial(_write_range, schema, schema.table(name), found))
            for name, found in sampled.items()
        }
        path = write_bundle(context.out, schema, ranges, receipt, queries, replay, context.workers, csv=context.csv)
        rows_of = {name: described["rows"] for name, described in read_bundle(path).manifest["tables"].items()}
        shown = {"rows": rows_of, "verdicts": verdicts, "lost": lost, "workload": noted}
        return Artifact({**shown, "summary": {"rows": rows_of}})

    prices = {key.name: (step.price.measure.value, step.price.amount) for key, step in links.items()}
    reordered = [table.name for table in schema.private_tables if added_by(schema, table)]
    parameters: dict[str, Any] = {
        "links": {key.name: [*prices[key.name], bounds_references(step)] for key, step in links.items()},
        **({"as added": reordered} if reordered else {}),
    }
    return Step(("publish", "bundle"), StepKind.PUBLISH, "", tuple(inputs), (), free, run, parameters, version="9")


def _write_range(schema: Schema, table: Table, sampled: SampledTable, number: int, file: Path) -> None:
    """Write a range as a Parquet file; one that was drawn by itself, and in this order, is stored as such."""
    if sampled.listed and not added_by(schema, table):
        file.write_bytes(sampled.part_file(number))
    else:
        write_table(file, table, as_added(schema, table, sampled.part_rows(number)))


def _workload(
    context: StepContext, schema: Schema, sampled: Mapping[str, SampledTable]
) -> tuple[dict[str, str], dict[str, dict[str, str]], dict[str, Any]]:
    """Return SQL text of the run's workload for these rows, its replay, and what the receipt says on it, by name."""
    if not context.workload:
        return {}, {}, {}
    # Brings in DuckDB, which most runs can do without.
    from privbench_core.workload.rebind import pgbench_files, rebind_workload
    from privbench_core.workload.values import ReleasedMarginal

    rows, released = {name: found.whole_rows() for name, found in sampled.items()}, {}
    for table in schema.private_tables:
        profile = released_profile(context.inputs, table.name)
        counts, differences = profile.one_way.counts, {column.name for column, _ in table.relatives}
        released[table.name] = {
            name: ReleasedMarginal(discretizer, counts[name])
            for name, discretizer in profile.discretizers.items()
            if name not in differences
        }
    queries, replay, noted = {}, {}, {}
    for name, workload in context.workload.items():
        rebound = rebind_workload(workload, schema, rows, released, context.rng("workload", name))
        if rebound.kept:  # a file without a query could not be read back
            queries[name], replay[name] = rebound.to_sql(), pgbench_files(rebound)
        noted[name] = {
            "rule": _RULE,
            "queries": len(rebound.kept),
            "literals": "hidden" if workload.hide_literals else "public",
            "literals_rebound": rebound.literals,
            "left_out": [{"query": number, "reason": reason} for number, reason in rebound.left_out],
        }
    return queries, replay, noted


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
    return Step(("validate", table.name), StepKind.VALIDATE, table.name, tuple(inputs), (), free, run, parameters, "7")


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
