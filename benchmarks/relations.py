"""Two private tables and the key between them: what each synthesizer makes of the tables, and of who belongs together.

Beside the synthesizers stand random linkings, the papers' way to make a database with a synthesizer of single tables:
sizes of groups are allocated at random, and then the children. Of the source's own rows (*true tables*) every table is
perfect and only the join is lost; of PrivBench's rows the tables are synthetic as well. *Sizes kept* allocates the
children alone: every parent has as many as it had, which already tells some of the join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from benchmarks import histograms
from benchmarks.measure import Runs
from benchmarks.report import machine, markdown, medians
from benchmarks.workloads import SYNTHESIZERS, Tables, available, bundle_of
from privbench_core.backends.registry import open_source
from privbench_core.columns.registry import codec_for
from privbench_core.evaluation.joins import (
    CountingQuery,
    CountingShape,
    JoinValues,
    LinkedTables,
    Numbers,
    Predicate,
    correlations,
    counting_errors,
    counting_queries,
    fanout_wasserstein,
    link_tables,
    ordered_values,
)
from privbench_core.evaluation.marginals import EncodedTable, codes_tvd, column_subsets, encode_tables, mean_distances
from privbench_core.schema.columns import Column, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import Spec
from tests.helpers.row_figures import joint_tvd

QUERIES = 2000
_BASELINES = ("privspn",)  # the paper's own networks, for what our leaves add
_SHAPES = {f"c{c} k{k}": CountingShape(children=c, attributes=k) for c, k in product((1, 2), repeat=2)}
_TRUE = {"δ": "-", "ε": "-"}

Rows = list[dict[str, str | float]]


@dataclass(frozen=True)
class Join:
    """The join of one database: as codes for queries, as numbers for correlations.

    Attributes:
        linked: Codes of both tables and the links.
        parent, child: Ordered columns by name (`ordered_values`).
    """

    linked: LinkedTables
    parent: dict[str, Numbers]
    child: dict[str, Numbers]

    @property
    def side(self) -> JoinValues:
        """As `correlations` wants it."""
        return self.parent, self.child, self.linked.links

    def with_shuffled_links(self, seed: int) -> dict[str, Join]:
        """The same rows with children allocated at random, by what the linking is called."""
        rng = np.random.default_rng(seed)
        fanout = rng.permutation(self.linked.fanout)
        allocated = np.full(len(self.linked.links), -1, np.int64)
        allocated[: int(fanout.sum())] = np.repeat(np.arange(len(fanout)), fanout)
        anyone = replace(self.linked, links=rng.permutation(allocated))
        return {
            "random link": replace(self, linked=anyone),
            "random link, sizes kept": replace(self, linked=self.linked.with_shuffled_links(rng)),
        }


@dataclass(frozen=True)
class Pair:
    """The true database, coded, and the workloads it is asked.

    Attributes:
        spec: Of two tables, the unit's and the one that its rows own.
        tables: The rows.
        coded: Their codes.
        key: From the child to its owner.
        join: Both tables along the key.
        queries: Counting queries by the number of children c and of attributes k.
    """

    spec: Spec
    tables: Tables
    coded: Mapping[str, EncodedTable]
    key: ForeignKey
    join: Join
    queries: Mapping[str, tuple[CountingQuery, ...]]

    @classmethod
    def of(cls, spec: Spec) -> Pair:
        """Read the source, and draw counting queries."""
        source = open_source(spec, b"")
        tables = {table.name: source.read(table) for table in spec.schema.tables}
        coded = encode_tables(spec.schema, tables)
        key = next(key for table in spec.schema.tables for key in table.foreign_keys if key.owner)
        join = _join(spec.schema, key, tables, coded)
        return cls(spec, tables, coded, key, join, _queries(spec.schema, key, join.linked))

    @property
    def delta(self) -> float:
        """One over the rows of the child's table, as the paper has it."""
        return 1 / len(self.join.linked.child)

    @property
    def sizes(self) -> str:
        """Rows of both tables, in words."""
        return ", ".join(f"{rows.num_rows:,} {name}" for name, rows in self.tables.items())

    def joined(self, synthetic: Tables, coded: Mapping[str, EncodedTable]) -> Join:
        """The join of a synthetic database."""
        return _join(self.spec.schema, self.key, synthetic, coded)

    def score_table(self, name: str, synthetic: EncodedTable) -> dict[str, float]:
        """Distances of one table's marginals, by column heading."""
        true, sizes = self.coded[name].codes, self.coded[name].sizes
        two = mean_distances(true, synthetic.codes, sizes, column_subsets(len(sizes), 2))
        three = mean_distances(true, synthetic.codes, sizes, column_subsets(len(sizes), 3, limit=200))
        return {
            "2-way TVD": two.tvd,
            "3-way TVD": three.tvd,
            "2-way KLD": two.kld,
            "3-way KLD": three.kld,
        }

    def score_join(self, synthetic: Join) -> dict[str, float]:
        """Errors of counting queries, distances of the join and of correlations, by column heading."""
        true, other = self.join.linked, synthetic.linked
        joint = joint_tvd(true, other)
        between, among = correlations(self.join.side, synthetic.side)
        return {
            **{
                f"counting error, {name}": float(counting_errors(true, other, queries).mean())
                for name, queries in self.queries.items()
            },
            "Pearson, parent and child": _mean_difference(between),
            "Pearson, siblings": _mean_difference(among),
            "joint TVD, mean": float(joint.mean()),
            "joint TVD, worst": float(joint.max()),
            "fanout TVD": codes_tvd(true.fanout, other.fanout),
            "fanout distance, children": fanout_wasserstein(true.fanout, other.fanout),
        }


def _join(schema: Schema, key: ForeignKey, tables: Tables, coded: Mapping[str, EncodedTable]) -> Join:
    parent, child = (ordered_values(schema.table(name), tables[name]) for name in (key.parent, key.child))
    return Join(link_tables((key,), tables, coded), parent, child)


def _queries(schema: Schema, key: ForeignKey, linked: LinkedTables) -> dict[str, tuple[CountingQuery, ...]]:
    """Workloads of every shape over the declared domains, as the papers draw them.

    Codes for NULL and for what is outside of a domain come after it. They would take up room in predicates and be met
    by next to nothing, so no predicate admits them.
    """
    parent, child = ([_cells(column) for column in schema.table(name).attributes] for name in (key.parent, key.child))
    domains = replace(linked, parent_sizes=tuple(n for n, _ in parent), child_sizes=tuple(n for n, _ in child))
    runs = ([run for _, run in parent], [run for _, run in child])

    def widened(predicate: Predicate, sizes: Sequence[int]) -> Predicate:
        return tuple((c, np.pad(admitted, (0, sizes[c] - len(admitted)))) for c, admitted in predicate)

    def coded(query: CountingQuery) -> CountingQuery:
        children = tuple(widened(each, linked.child_sizes) for each in query.children)
        return query._replace(parent=widened(query.parent, linked.parent_sizes), children=children)

    return {
        name: tuple(map(coded, counting_queries(domains, runs, shape, QUERIES, np.random.default_rng(number))))
        for number, (name, shape) in enumerate(_SHAPES.items())
    }


def _cells(column: Column) -> tuple[int, bool]:
    """Codes of a declared domain alone, and whether neighbours belong together."""
    if isinstance(column.domain, Values):
        return len(column.domain.values), False
    codec = codec_for(column)
    return codec.ordered or codec.size, codec.ordered > 0


def _mean_difference(coefficients: Sequence[Mapping[str, Any]]) -> float:
    """Mean absolute difference of the coefficients that both databases have."""
    both = [(each["source"], each["synthetic"]) for each in coefficients]
    found = [abs(true - made) for true, made in both if true is not None and made is not None]
    return float(np.mean(found)) if found else float("nan")


def run(pair: Pair, runs: Runs, *, baselines: bool = True) -> str:
    """Measure and return Markdown text: a table per table, then the join.

    Args:
        pair: The database.
        runs: What is run, at some δ; PrivPetal has no pure form.
        baselines: Whether to show both random linkings, the paper's own networks and independent histograms.
    """
    tables: Rows = []
    joins: Rows = []
    for seed in range(runs.seeds if baselines else 0):
        for linking, with_shuffled_links in pair.join.with_shuffled_links(seed).items():
            joins.append({**_TRUE, "method": f"true tables, {linking}", **pair.score_join(with_shuffled_links)})
    for (delta, epsilon), seed in product(runs.budgets, range(runs.seeds)):
        cell = {"δ": f"{delta:.3g}", "ε": f"{epsilon:g}"}
        for name in (*SYNTHESIZERS, *(_BASELINES if baselines else ())):
            if not available(name, delta):
                continue
            runs.progress(f"{pair.spec.schema.name}: {name}, epsilon {epsilon:g}, delta {delta:g}, seed {seed}")
            of_tables, of_joins = _one_run(pair, name, (epsilon, delta, seed), baselines)
            tables += [{**cell, **row} for row in of_tables]
            joins += [{**cell, **row} for row in of_joins]
        if baselines:
            tables += [{**cell, **row} for row in _histogram_rows(pair, epsilon, delta, seed)]
    by_table = markdown(medians(tables, ("table", "δ", "ε", "method")))
    by_join = markdown(medians(joins, ("δ", "ε", "method")))
    head = f"{machine(runs.seeds)} {pair.sizes}."
    return f"{head}\n\n**Tables**\n\n{by_table}\n\n**The join**\n\n{by_join}"


def _one_run(pair: Pair, name: str, run: tuple[float, float, int], baselines: bool) -> tuple[Rows, Rows]:
    """Rows for both tables of figures: a synthesizer, and PrivBench's rows once more in a random linking."""
    with bundle_of(pair.spec.path, name, *run) as (bundle, costs):
        synthetic = {table: bundle.table(table) for table in pair.tables}
    coded = encode_tables(pair.spec.schema, synthetic, pair.tables)
    join = pair.joined(synthetic, coded)
    tables: Rows = [{"table": table, "method": name, **pair.score_table(table, of)} for table, of in coded.items()]
    joins: Rows = [{"method": name, **pair.score_join(join), **costs}]
    if baselines and name == "privbench":
        for linking, with_shuffled_links in join.with_shuffled_links(run[2]).items():
            joins.append({"method": f"{name}, {linking}", **pair.score_join(with_shuffled_links)})
    return tables, joins


def _histogram_rows(pair: Pair, epsilon: float, delta: float, seed: int) -> Rows:
    """Independent histograms, half of the budget for each table; a unit moves as many rows as it may own."""
    rows: Rows = []
    for name, of_table in pair.coded.items():
        owned = pair.spec.schema.max_rows_per_unit(name)
        synthetic, _, _ = histograms.fit_sample(
            of_table.codes, list(of_table.sizes), list(of_table.ordered), epsilon, delta, seed, owned, 0.5
        )
        scored = pair.score_table(name, replace(of_table, codes=synthetic))
        rows.append({"table": name, "method": "independent histograms", **scored})
    return rows
