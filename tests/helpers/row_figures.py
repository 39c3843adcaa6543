"""Row-level distances between two databases, because queries count rows, while models are built on privacy units.

All figures are over rows: their number, that of joins, the distribution of their values, of what they join to along
each key, and of how many rows share a parent. Nothing is averaged over parents first, as weights of 1/fanout would do.

The baseline to beat is `shuffled_reference`: perfect counts, one-way marginals, fanouts and popularity, and no
dependence between any two columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.evaluation.joins import (
    Chain,
    LinkedTables,
    chain_links,
    chains,
    junctions,
    link_junction,
    link_tables,
    sibling_agreements,
)
from privbench_core.evaluation.marginals import (
    BINS,
    EncodedTable,
    codes_tvd,
    encode_tables,
    quantiles,
    subset_distances,
)
from privbench_core.schema.columns import ColumnType, Values
from privbench_core.schema.tables import Schema

_NUMBERS = (ColumnType.INTEGER, ColumnType.DECIMAL, ColumnType.FLOAT)
Tables = Mapping[str, pa.Table]
Figures = dict[str, float]
_Coded = tuple[Tables, Mapping[str, EncodedTable]]
_Join = tuple[str, EncodedTable, EncodedTable, tuple[LinkedTables, LinkedTables]]  # name, parent, child, both sides


@dataclass(frozen=True)
class RowFigures:
    """Distances over rows; all but the first three are total variation distances in [0, 1]. Public tables are left out.

    Attributes:
        rows: Relative error of the number of rows, signed, by table.
        join_size: The same of inner joins of three or four tables: along chains of keys, and of the children of one
            parent along two keys.
        means: Error of the mean of numbers, relative to that of their absolute values, signed, by ``table.column``.
        one_way: By ``table.column``.
        joined: Of a parent's column and a child's over the joined rows, by ``key: parent column, child column``.
        further: The same along chains of keys, and between parents that meet in the rows of a child.
        fanout: Of children per parent in classes of sizes 0, 1, 2-3, 4-7, …, over *parents*, by owner key.
        group_size: Of the size of the group that a row is in, in the same classes, over *rows*, by owner key.
        popularity: Of references among parents in order of popularity (`popularity_distance`), by every other key.
        by_name: Of references among the rows of a public parent, by key.
        siblings: How much more likely rows have the code of another child of their owner, by ``key: column``, over the
            rows that have siblings; left out where none has in the source.
    """

    rows: Figures
    join_size: Figures
    means: Figures
    one_way: Figures
    joined: Figures
    further: Figures
    fanout: Figures
    group_size: Figures
    popularity: Figures
    by_name: Figures
    siblings: Figures

    def worst(self) -> Figures:
        """Return the largest absolute figure of each kind, NaN where there is none."""
        return {f.name: max(map(abs, getattr(self, f.name).values()), default=float("nan")) for f in fields(self)}

    def mean(self) -> Figures:
        """Return the mean absolute figure of each kind, NaN where there is none."""
        found = {f.name: np.abs(list(getattr(self, f.name).values())) for f in fields(self)}
        return {name: float(values.mean()) if values.size else float("nan") for name, values in found.items()}

    def beyond(self, **limits: float) -> Figures:
        """Return the figures above their kind's limit, by kind and name.

        >>> RowFigures({"a": -0.2}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}).beyond(rows=0.1)
        {'rows of a': -0.2}
        """
        return {
            f"{kind} of {name}": value
            for kind, limit in limits.items()
            for name, value in getattr(self, kind).items()
            if not abs(value) <= limit
        }


def row_figures(schema: Schema, source: Tables, synthetic: Tables) -> RowFigures:
    """Compare two databases over rows; reads private rows, so the figures are internal.

    Args:
        schema: Of both.
        source: The original rows, by table.
        synthetic: The other rows; columns without a declared domain and wide ones are coded by ``source``.

    Raises:
        SourceError: A column holds values of the wrong type, or NULL where none may be.
    """
    true, made = coarsen(encode_tables(schema, source), encode_tables(schema, synthetic, source))
    both = (source, true), (synthetic, made)
    keys = [key for table in schema.private_tables for key in table.foreign_keys]
    owners = [key for key in keys if key.owner]
    sides = {key: (link_tables((key,), *both[0]), link_tables((key,), *both[1])) for key in keys}
    return RowFigures(
        rows={t.name: _relative(source[t.name].num_rows, synthetic[t.name].num_rows) for t in schema.private_tables},
        join_size={
            _name(chain): _relative(*(int((chain_links(chain, tables) >= 0).sum()) for tables, _ in both))
            for chain in chains(schema)
        }
        | {
            f"{one.name} and {other.name}": _relative(
                *(int(a.fanout @ b.fanout) for a, b in zip(sides[one], sides[other], strict=True))
            )
            for one, other in combinations(keys, 2)
            if one.parent == other.parent
        },
        means=_means(schema, source, synthetic),
        one_way=_one_way(schema, true, made),
        joined=_pairs((key.name, true[key.parent], true[key.child], sides[key]) for key in keys),
        further=_pairs(_further(schema, *both)),
        fanout={key.name: size_class_distance(*(side.fanout for side in sides[key])) for key in owners},
        group_size={  # of each row with a parent
            key.name: size_class_distance(*(np.repeat(side.fanout, side.fanout) for side in sides[key]))
            for key in owners
        },
        popularity={key.name: popularity_distance(*sides[key]) for key in keys if not key.owner},
        by_name={  # the rows of a public parent are the same on both sides
            key.name: codes_tvd(
                *(chain_links((key,), {**tables, key.parent: source[key.parent]}) + 1 for tables in (source, synthetic))
            )
            for key in keys
            if schema.table(key.parent).public
        },
        siblings={
            f"{key.name}: {true[key.child].names[place]}": after - before
            for key in owners
            for place, (before, after) in sibling_agreements(*sides[key]).items()
        },
    )


def coarsen(
    true: Mapping[str, EncodedTable], made: Mapping[str, EncodedTable]
) -> tuple[dict[str, EncodedTable], dict[str, EncodedTable]]:
    """Return both with wide columns in few codes: where there is an order, bins of about as many rows of the source.

    Lists keep the `BINS` values that most rows of the source have; all others, and those that it has not, are one code.
    A pair of wide columns has more cells than there are rows, so two samples of one distribution would be far apart;
    and values that one row has each, such as numbers of documents, would be wrong whatever they are.
    """
    coarse: tuple[dict[str, EncodedTable], dict[str, EncodedTable]] = {}, {}
    for name, coded in true.items():
        sides = [np.array(side[name].codes, order="F") for side in (true, made)]
        sizes = list(coded.sizes)
        for i in (i for i, size in enumerate(sizes) if size > BINS + 1 and len(sides[0])):
            if coded.ordered[i]:
                cuts = quantiles(sides[0][:, i], BINS)
                code_of = np.searchsorted(cuts, np.arange(sizes[i]), side="left")
            else:
                rows = np.bincount(sides[0][:, i], minlength=sizes[i])
                code_of = np.full(sizes[i], BINS)
                code_of[np.argsort(-rows, kind="stable")[:BINS]] = np.arange(BINS)
            sizes[i] = int(code_of.max()) + 1
            for codes in sides:
                codes[:, i] = code_of[codes[:, i]]
        for result, codes in zip(coarse, sides, strict=True):
            result[name] = replace(coded, codes=codes, sizes=tuple(sizes))
    return coarse


def size_class_distance(true: NDArray[np.integer], made: NDArray[np.integer]) -> float:
    """Return the TVD between the classes 0, 1, 2-3, 4-7, … of two sets of sizes, each of shape (n,).

    Exact sizes of a heavy tail occur about once, so over those two samples of one distribution would seem far apart.
    """
    return codes_tvd(*(np.frexp(sizes.astype(float))[1] for sizes in (true, made)))


def popularity_distance(true: LinkedTables, made: LinkedTables) -> float:
    """Return the share of references that would have to go to parents of another popularity, in [0, 1].

    Half the L1 distance between the shares of references as functions of the parents' relative rank by popularity;
    child rows without a parent are a share of their own. The numbers of parents may differ. That is the earth mover's
    distance between the degree distributions, over twice the mean degree.
    """
    if not len(true.links) or not len(made.links):
        return float(len(true.links) != len(made.links))
    none = [float((linked.links < 0).mean()) for linked in (true, made)]
    density = [np.sort(linked.fanout) * (len(linked.parent) / len(linked.links)) for linked in (true, made)]
    edges = np.union1d(*(np.linspace(0.0, 1.0, len(shares) + 1) for shares in density))
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    at = [d[np.minimum((middle * len(d)).astype(np.int64), len(d) - 1)] if len(d) else 0 * middle for d in density]
    return float(np.abs(at[0] - at[1]) @ width + abs(none[0] - none[1])) / 2


def joint_tvd(true: LinkedTables, synthetic: LinkedTables) -> NDArray[np.float64]:
    """Return the TVD of each joint marginal (one parent attribute, one child attribute) over the inner join.

    Returns:
        Shape (parent columns, child columns).
    """
    parents, children = len(true.parent_sizes), len(true.child_sizes)
    pairs = [(i, parents + j) for i in range(parents) for j in range(children)]
    each = subset_distances(true.joined, synthetic.joined, true.sizes, pairs)
    return np.array([distances.tvd for distances in each]).reshape(parents, children)


def _means(schema: Schema, source: Tables, synthetic: Tables) -> Figures:
    found: Figures = {}
    for table in schema.private_tables:
        for column in table.attributes:
            true, made = (tables[table.name].column(column.name) for tables in (source, synthetic))
            if column.type in _NUMBERS and not isinstance(column.domain, Values) and true.null_count < len(true):
                numbers = [pc.cast(values, pa.float64(), safe=False) for values in (true, made)]
                means = [pc.mean(values).as_py() or 0.0 for values in numbers]
                scale = pc.mean(pc.abs(numbers[0])).as_py() or 1.0
                found[f"{table.name}.{column.name}"] = (means[1] - means[0]) / scale
    return found


def _one_way(schema: Schema, true: Mapping[str, EncodedTable], made: Mapping[str, EncodedTable]) -> Figures:
    found: Figures = {}
    for table in schema.private_tables:
        a, b = true[table.name], made[table.name]
        singles = subset_distances(a.codes, b.codes, a.sizes, [(i,) for i in range(len(a.names))])
        found |= {f"{table.name}.{name}": each.tvd for name, each in zip(a.names, singles, strict=True)}
    return found


def _pairs(joins: Iterable[_Join]) -> Figures:
    """Return the distances of all pairs of columns of joins."""
    return {
        f"{name}: {of_parent}, {of_child}": distance
        for name, parent, child, sides in joins
        for (of_parent, of_child), distance in zip(
            product(parent.names, child.names), joint_tvd(*sides).ravel().tolist(), strict=True
        )
    }


def _further(schema: Schema, source: _Coded, synthetic: _Coded) -> Iterator[_Join]:
    true = source[1]
    for chain in chains(schema):
        sides = link_tables(chain, *source), link_tables(chain, *synthetic)
        yield _name(chain), true[chain[-1].parent], true[chain[0].child], sides
    for one, other in junctions(schema):
        sides = link_junction(one, other, *source), link_junction(one, other, *synthetic)
        yield f"{one.name} and {other.name}", true[one.parent], true[other.parent], sides


def _name(chain: Chain) -> str:
    return " → ".join(key.name for key in chain)


def _relative(true: int, made: int) -> float:
    return (made - true) / max(true, 1)
