"""The figures of a report: how far the synthetic database is from its source, table by table and key by key.

Each figure stands beside what would be got for nothing: shuffled columns for tables, shuffled children for keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from privbench_core.evaluate.counting import CountingShape, counting_errors, counting_queries
from privbench_core.evaluate.encode import Coded, encode_tables
from privbench_core.evaluate.joins import Linked, fanout_distance, joint_tvd, link_tables
from privbench_core.evaluate.marginals import CodeTable, column_subsets, mean_kld, mean_tvd, tvd
from privbench_core.schema.model import ForeignKey, Schema

ORDERS = (1, 2, 3)
SUBSETS = 200
"""Marginals of one order that are compared at most; a seeded sample of them above that."""
COUNTING_QUERIES = 200
_SEED = 0  # the report of a bundle is the same whenever it is made


@dataclass(frozen=True)
class TableFigures:
    """Distances for one private table.

    Attributes:
        rows: Rows in the source and in the synthetic table.
        columns: Total variation distance per attribute.
        tvd: Mean total variation distance of the λ-way marginals, by λ; None where there are none.
        kld: Mean KL divergence in nats, likewise, over the same cells.
        marginals: What the means are over, by λ.
        shuffled: 2-way distance of the source from itself with every column shuffled: no correlation at all.
    """

    rows: tuple[int, int]
    columns: dict[str, float]
    tvd: dict[int, float | None]
    kld: dict[int, float | None]
    marginals: dict[int, str]
    shuffled: float | None


@dataclass(frozen=True)
class KeyFigures:
    """Distances for the join along one foreign key.

    Attributes:
        parent: The table it refers to.
        pairs: Total variation distance per (parent attribute, child attribute) over the joined rows.
        joint: Mean of ``pairs``.
        shuffled: The same for the synthetic rows with children dealt out at random.
        fanout_tvd: Distance between the distributions of children per parent.
        fanout_wasserstein: The same as an earth mover's distance, in children.
        counting: Mean relative error of PrivLava's counting queries.
    """

    parent: str
    pairs: dict[tuple[str, str], float]
    joint: float | None
    shuffled: float | None
    fanout_tvd: float
    fanout_wasserstein: float
    counting: float | None


@dataclass(frozen=True)
class Pair:
    """Source and synthetic database, as rows and as codes in the same cells."""

    schema: Schema
    source: Mapping[str, pa.Table]
    synthetic: Mapping[str, pa.Table]

    @cached_property
    def coded(self) -> tuple[dict[str, Coded], dict[str, Coded]]:
        """Codes by table, of the source and of the synthetic database."""
        return (
            encode_tables(self.schema, self.source),
            encode_tables(self.schema, self.synthetic, self.source),
        )

    @property
    def foreign_keys(self) -> tuple[ForeignKey, ...]:
        """Keys of private tables; those of public tables are published as they are."""
        return tuple(key for table in self.schema.private_tables for key in table.foreign_keys)

    def linked(self, key: ForeignKey) -> tuple[Linked, Linked]:
        """The join along ``key`` in the source and in the synthetic database."""
        return link_tables(key, self.source, self.coded[0]), link_tables(key, self.synthetic, self.coded[1])


@dataclass(frozen=True)
class Comparison:
    """All figures.

    Attributes:
        tables: By name; public tables are published as they are and not among them.
        keys: By `ForeignKey.name`.
    """

    tables: dict[str, TableFigures]
    keys: dict[str, KeyFigures]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "tables": {name: asdict(figures) for name, figures in self.tables.items()},
            "foreign_keys": {
                name: asdict(figures)
                | {"pairs": [{"parent": p, "child": c, "tvd": d} for (p, c), d in figures.pairs.items()]}
                for name, figures in self.keys.items()
            },
        }


def compare(pair: Pair, orders: tuple[int, ...] = ORDERS) -> Comparison:
    """Work out all figures; looks at private rows."""
    true, synthetic = pair.coded
    tables = {t.name: _table(true[t.name], synthetic[t.name], orders) for t in pair.schema.private_tables}
    keys = {}
    for key in pair.foreign_keys:
        names = (true[key.parent].names, true[key.child].names)
        ordered = (true[key.parent].ordered, true[key.child].ordered)
        keys[key.name] = _key(key.parent, *pair.linked(key), names, ordered)
    return Comparison(tables, keys)


def _table(true: Coded, synthetic: Coded, orders: tuple[int, ...]) -> TableFigures:
    a, b, sizes = true.codes, synthetic.codes, true.sizes
    subsets = {order: column_subsets(len(sizes), order, SUBSETS, _SEED) for order in orders}
    return TableFigures(
        rows=(len(a), len(b)),
        columns={name: tvd(a, b, (i,), sizes) for i, name in enumerate(true.names)},
        tvd={order: _finite(mean_tvd(a, b, sizes, order, chosen)) for order, chosen in subsets.items()},
        kld={order: _finite(mean_kld(a, b, sizes, order, chosen)) for order, chosen in subsets.items()},
        marginals={order: str(chosen) for order, chosen in subsets.items()},
        shuffled=_finite(mean_tvd(a, _shuffled(a), sizes, 2, column_subsets(len(sizes), 2, SUBSETS, _SEED))),
    )


def _shuffled(codes: CodeTable) -> CodeTable:
    return np.random.default_rng(_SEED).permuted(codes, axis=0)


def _key(
    parent: str,
    true: Linked,
    synthetic: Linked,
    names: tuple[tuple[str, ...], tuple[str, ...]],
    ordered: tuple[tuple[bool, ...], tuple[bool, ...]],
) -> KeyFigures:
    distances = joint_tvd(true, synthetic)
    random = joint_tvd(true, synthetic.relinked(np.random.default_rng(_SEED)))
    fanout = fanout_distance(true.fanout, synthetic.fanout)
    counting = None
    if distances.size and len(true.parent) and len(synthetic.parent):
        shape = CountingShape(max_fanout=max(1, int(true.fanout.max())))
        queries = counting_queries(true, ordered, shape, COUNTING_QUERIES, np.random.default_rng(_SEED))
        counting = float(counting_errors(true, synthetic, queries).mean())
    return KeyFigures(
        parent=parent,
        pairs={(p, c): float(distances[i, j]) for i, p in enumerate(names[0]) for j, c in enumerate(names[1])},
        joint=float(distances.mean()) if distances.size else None,
        shuffled=float(random.mean()) if distances.size else None,
        fanout_tvd=fanout.tvd,
        fanout_wasserstein=fanout.wasserstein,
        counting=counting,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
