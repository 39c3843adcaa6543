"""San Diego households and persons, end to end: every table, and how much of the household-person join survives.

Two random linkings stand beside each run. *True tables, random link*: the source's own rows with persons dealt out at
random, so every table is perfect and only the join is lost. *Synthetic, random link*: the synthetic rows dealt out at
random, which shows what the synthesizer's own linking adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import histograms
from benchmarks.measure import call_in_child
from benchmarks.report import machine, markdown, medians
from privbench_core.evaluate.counting import CountingQuery, CountingShape, counting_errors, counting_queries
from privbench_core.evaluate.encode import Coded, encode_tables
from privbench_core.evaluate.joins import Linked, fanout_distance, joint_tvd, link_tables
from privbench_core.evaluate.marginals import column_subsets, mean_kld, mean_tvd
from privbench_core.schema.model import ForeignKey, Schema
from privbench_core.schema.spec import load_spec

SPEC = Path(__file__).resolve().parents[1] / "examples" / "households" / "spec.yaml"
EPSILONS = (0.2, 0.8, 3.2)
DELTAS = (1e-9, 0.0)
QUERIES = 500
MAX_PERSONS = 10  # the spec's bound on persons per household, the peer's sensitivity

Tables = Mapping[str, pa.Table]
Rows = list[dict[str, str | float]]


def run_privbench(epsilon: float, delta: float, seed: int, out: str) -> float:
    """Run the whole pipeline on the example into the folder ``out``; returns seconds. Called in a process of its own.

    Ledger and releases go to a folder of their own with a lifetime budget that never ends: the example's own budget is
    not touched, and no run is handed the releases of an earlier one.
    """
    from privbench_core.pipeline.run import run_spec  # only the child process pays for it

    spec = replace(load_spec(SPEC), state=Path(out) / "state", lifetime_epsilon=1e6, lifetime_delta=0.5)
    start = perf_counter()
    run_spec(spec, epsilon, delta=delta, seed=seed, out=Path(out) / "bundle")
    return perf_counter() - start


@dataclass(frozen=True)
class Source:
    """The true database, coded, and the workloads it is asked."""

    schema: Schema
    tables: Tables
    coded: Mapping[str, Coded]
    link: ForeignKey
    linked: Linked
    queries: Mapping[str, tuple[CountingQuery, ...]]

    @classmethod
    def load(cls) -> Source:
        """Read the example, and draw counting queries from its declared domains."""
        schema = load_spec(SPEC).schema
        tables = {
            table.name: pq.read_table(SPEC.parent / f"{table.name}.parquet").select([c.name for c in table.columns])
            for table in schema.tables
        }
        coded = encode_tables(schema, tables)
        link = next(key for table in schema.tables for key in table.foreign_keys if key.owner)
        linked = link_tables(link, tables, coded)
        ordered = (coded[link.parent].ordered, coded[link.child].ordered)
        queries = {
            f"{persons} person{'s' if persons > 1 else ''}": counting_queries(
                linked, ordered, CountingShape(children=persons), QUERIES, np.random.default_rng(persons)
            )
            for persons in (1, 2)
        }
        return cls(schema, tables, coded, link, linked, queries)

    def score_table(self, name: str, synthetic: Coded) -> dict[str, float]:
        """Distances of one table's marginals, by column heading."""
        true, sizes = self.coded[name].codes, self.coded[name].sizes
        triples = column_subsets(len(sizes), 3, limit=200)
        return {
            "2-way TVD": mean_tvd(true, synthetic.codes, sizes, 2),
            "3-way TVD": mean_tvd(true, synthetic.codes, sizes, 3, triples),
            "2-way KLD": mean_kld(true, synthetic.codes, sizes, 2),
            "3-way KLD": mean_kld(true, synthetic.codes, sizes, 3, triples),
        }

    def score_link(self, synthetic: Linked) -> dict[str, float]:
        """Distances of the join, by column heading."""
        fanout = fanout_distance(self.linked.fanout, synthetic.fanout)
        joint = joint_tvd(self.linked, synthetic)
        return {
            "joint TVD, mean": float(joint.mean()),
            "joint TVD, worst": float(joint.max()),
            "fanout TVD": fanout.tvd,
            "fanout distance, persons": fanout.wasserstein,
            **{
                f"counting error, {name}": float(counting_errors(self.linked, synthetic, queries).mean())
                for name, queries in self.queries.items()
            },
        }


def run(
    *,
    seeds: int = 3,
    epsilons: Sequence[float] = EPSILONS,
    deltas: Sequence[float] = DELTAS,
    progress: Callable[[str], None] = print,
) -> str:
    """Measure and return the Markdown text for the README: a table per table, then the join."""
    source = Source.load()
    tables: Rows = []
    joins: Rows = []
    for delta in deltas:
        for epsilon in epsilons:
            for seed in range(seeds):
                progress(f"sandag: epsilon {epsilon:g}, delta {delta:g}, seed {seed}")
                cell = {"δ": f"{delta:g}", "ε": f"{epsilon:g}"}
                of_tables, of_joins = _one_run(source, epsilon, delta, seed)
                tables += [{**cell, **row} for row in of_tables]
                joins += [{**cell, **row} for row in of_joins]
    by_table = markdown(medians(tables, ("table", "δ", "ε", "method")))
    by_join = markdown(medians(joins, ("δ", "ε", "method")))
    return f"{machine(seeds)}\n\n**Tables**\n\n{by_table}\n\n**The household-person join**\n\n{by_join}"


def _one_run(source: Source, epsilon: float, delta: float, seed: int) -> tuple[Rows, Rows]:
    """Rows for both tables of figures: privbench, its peers, and both random linkings."""
    rng = np.random.default_rng(seed)
    with TemporaryDirectory() as folder:
        arguments: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "seed": seed, "out": folder}
        seconds, peak = call_in_child("benchmarks.sandag:run_privbench", arguments)
        synthetic = {
            table.name: pq.read_table(Path(folder) / "bundle" / "data" / f"{table.name}.parquet")
            for table in source.schema.tables
        }
    coded = encode_tables(source.schema, synthetic, source.tables)
    linked = link_tables(source.link, synthetic, coded)
    tables: Rows = [
        {"table": name, "method": "privbench", **source.score_table(name, of_table)} for name, of_table in coded.items()
    ]
    tables += _histogram_rows(source, epsilon, delta, seed)
    costs = {"seconds, whole run": seconds, "peak MB": peak}
    joins: Rows = [
        {"method": "privbench", **source.score_link(linked), **costs},
        {"method": "synthetic, random link", **source.score_link(linked.relinked(rng))},
        {"method": "true tables, random link", **source.score_link(source.linked.relinked(rng))},
    ]
    return tables, joins


def _histogram_rows(source: Source, epsilon: float, delta: float, seed: int) -> Rows:
    """Independent histograms, half of the budget for each table; a household moves up to ten rows of persons."""
    rows: Rows = []
    for name, of_table in source.coded.items():
        owned = 1 if name == source.schema.unit else MAX_PERSONS
        synthetic, _, _ = histograms.fit_sample(
            of_table.codes, list(of_table.sizes), list(of_table.ordered), epsilon, delta, seed, owned, 0.5
        )
        scored = source.score_table(name, replace(of_table, codes=synthetic))
        rows.append({"table": name, "method": "independent histograms", **scored})
    return rows
