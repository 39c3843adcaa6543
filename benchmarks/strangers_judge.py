"""Judge synthetic tables by raw values, whatever the draft of their spec made of the columns.

Numbers and times with many values are coded by deciles of the source, everything else by its 20 most frequent values,
one code for all others, and one for NULL. So a column that was numbered, cut, or made up is as far off as a recipient
sees it. Left out are columns whose values mean nothing: keys that number rows, references to private rows, texts of
which most rows have another one, and those whose values a draft generates because they identify persons.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.backends.postgres import quote_identifier
from privbench_core.profiles.measure_lags import tied_columns
from privbench_core.sampling.keys import group_numbers
from privbench_core.schema.columns import ColumnType, Pattern
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table

Tables = Mapping[str, pa.Table]
Codes = NDArray[np.int64]

_FEW = 20  # values with a code of their own
_CUTS = 10  # cells of a range: deciles of the source
_MOST_PAIRS = 150  # of a table, and of a key
_TOP = 10  # values of a list whose shares are shown
_QUERIES = 28  # of each number of tables
_JOINED_TABLES = (1, 2, 3)
_OPAQUE = {ColumnType.BYTES, ColumnType.JSON, ColumnType.UUID}
_MOST_OTHERS = 0.95  # a column whose rows nearly all have rare values has no distribution to compare


@dataclass(frozen=True)
class Coder:
    """Codes of a column, fixed by the source.

    Attributes:
        cuts: Inner edges of a range; empty for a list.
        values: The values with codes of their own, as text.
    """

    cuts: tuple[float, ...]
    values: tuple[str, ...]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Coder | None:
        """Return the coder of a column of the source; None where its rows hardly share values."""
        counted = pc.value_counts(column.drop_null())
        found = counted.field("counts").to_numpy(zero_copy_only=False)
        numbers = _numbers(column)
        if numbers is not None and len(found) > _FEW:
            edges = np.quantile(numbers[~np.isnan(numbers)], np.arange(1, _CUTS) / _CUTS)
            return cls(tuple(np.unique(edges).tolist()), ())
        if len(found) > max(_FEW, found.sum() / 2):
            return None
        order = np.argsort(-found, kind="stable")[:_FEW]
        if not found.sum() or found[order].sum() < (1 - _MOST_OTHERS) * found.sum():
            return None
        return cls((), tuple(_texts(counted.field("values").take(pa.array(order)))))

    @property
    def size(self) -> int:
        """Number of codes: of cells or values, of others, and of NULL."""
        return (len(self.cuts) + 1 if self.cuts else len(self.values)) + 2

    def codes(self, column: pa.ChunkedArray) -> Codes:
        """Return the code of each row, shape (rows,)."""
        if self.cuts:
            numbers = _numbers(column)
            if numbers is None:
                return np.full(len(column), self.size - 2)
            cells = np.searchsorted(self.cuts, numbers, side="right").astype(np.int64)
            return np.where(np.isnan(numbers), self.size - 1, cells)
        encoded = column.combine_chunks().dictionary_encode()
        place = {value: code for code, value in enumerate(self.values)}
        of_entry = np.array([place.get(text, self.size - 2) for text in _texts(encoded.dictionary)] + [self.size - 1])
        indices = encoded.indices.fill_null(len(of_entry) - 1).to_numpy(zero_copy_only=False)
        return np.asarray(of_entry[indices], dtype=np.int64)


def _ties(schema: Schema, tables: Tables) -> Iterator[tuple[str, float]]:
    """Yield which share of the dates and numbers of owned rows equals that of the row before, if there is one."""
    for table in schema.private_tables:
        key, rows = table.owner_key, tables[table.name]
        for name in tied_columns(table):
            numbers = _numbers(rows[name])
            if key is None or numbers is None:
                continue
            owners = group_numbers([rows[column] for column in key.columns], len(rows))
            known = ~np.isnan(numbers) & (owners >= 0)
            order = np.lexsort((numbers[known], owners[known]))
            following = np.diff(owners[known][order]) == 0
            same = np.diff(numbers[known][order]) == 0
            yield f"{table.name}.{name}", float(same[following].mean()) if following.any() else 0.0


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Return ordered values as numbers, NULL as NaN; None for others."""
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return None
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _texts(values: pa.Array) -> list[str]:
    """Return values as texts that do not depend on how wide a type is: 3 and 3.0 are equal."""
    if pa.types.is_decimal(values.type) or pa.types.is_floating(values.type):
        return [f"{float(value):.9g}" for value in values.to_pylist()]
    return [str(value) for value in values.to_pylist()]


@dataclass(frozen=True)
class Distances:
    """Total variation distances of a synthetic database from its source.

    Attributes:
        one: By ``table.column``.
        two: Of pairs of columns of a table.
        joined: Of a column and one of the row that a key of it refers to.
        values: Numbers of different values, as |ln(synthetic / source)|, by ``table.column``.
        top: Shares of the source's ten most frequent values that are kept, of the columns that are lists.
        ties: How far off it is how often rows of one owner have the same date or number (`_ties`), by column.
    """

    one: dict[str, float]
    two: list[float]
    joined: list[float]
    values: dict[str, float]
    top: dict[str, float]
    ties: dict[str, float]


@dataclass(frozen=True)
class _Query:
    """A number of rows to count: those of a table, joined along keys, in which columns have codes."""

    start: str
    path: tuple[ForeignKey, ...]
    columns: tuple[tuple[str, str], ...]


class StrangerJudge:
    """Compares synthetic tables with a source.

    Args:
        schema: By the draft: its keys, and what it generates.
        source: All tables.
        seed: Of the pairs and queries that are chosen.
    """

    def __init__(self, schema: Schema, source: Tables, seed: int = 1) -> None:
        self._schema, self._source = schema, source
        self.coders = {
            table.name: {
                column.name: coder
                for column in table.columns
                if means_something(schema, table, column.name, source[table.name])
                and (coder := Coder.of(source[table.name][column.name])) is not None
            }
            for table in schema.tables
        }
        rng = np.random.default_rng(seed)
        self._pairs = {
            table.name: _some(list(combinations(self.coders[table.name], 2)), rng) for table in schema.private_tables
        }
        keys = [key for table in schema.private_tables for key in table.foreign_keys]
        self._joined = [(key, _some(list(product(self._of_child(key), self.coders[key.parent])), rng)) for key in keys]
        self._true = self._coded(source)
        self._queries = list(self._draw_queries(rng))
        self._answers = self._answered(source, self._true)

    def _of_child(self, key: ForeignKey) -> list[str]:
        return [name for name in self.coders[key.child] if name not in key.columns]

    def distances(self, made: Tables) -> Distances:
        """Return the distances; public tables are as they were."""
        made = {**self._source, **made}
        codes = self._coded(made)
        one, two, joined, values, top = {}, [], [], {}, {}
        for table in self._schema.private_tables:
            name, coders = table.name, self.coders[table.name]
            true, other = self._true[name], codes[name]
            for column, coder in coders.items():
                where = f"{name}.{column}"
                one[where] = _distance(true[column], other[column], coder.size)
                here, there = (pc.count_distinct(side[name][column]).as_py() for side in (self._source, made))
                values[where] = abs(math.log(max(1, there) / max(1, here)))
                if coder.values:
                    a, b = (
                        _shares(side, coder.size)[: min(_TOP, len(coder.values))]
                        for side in (true[column], other[column])
                    )
                    top[where] = float(np.minimum(a, b).sum() / a.sum())
            for first, second in self._pairs[name]:
                size = coders[second].size
                both = [side[first] * size + side[second] for side in (true, other)]
                two.append(_distance(both[0], both[1], coders[first].size * size))
        for key, pairs in self._joined:
            rows = [_parent_rows(tables, key) for tables in (self._source, made)]
            for first, second in pairs:
                size = self.coders[key.parent][second].size
                both = [
                    side[key.child][first][child] * size + side[key.parent][second][parent]
                    for (child, parent), side in zip(rows, (self._true, codes), strict=True)
                ]
                joined.append(_distance(both[0], both[1], self.coders[key.child][first].size * size))
        shares = [dict(_ties(self._schema, tables)) for tables in (self._source, made)]
        return Distances(
            one, two, joined, values, top, {name: abs(shares[1][name] - shares[0][name]) for name in shares[0]}
        )

    def q_errors(self, made: Tables) -> NDArray[np.float64]:
        """Return the Q-error of each query, shape (queries,); no rows count as one."""
        made = {**self._source, **made}
        found = np.maximum(self._answered(made, self._coded(made)), 1)
        true = np.maximum(self._answers, 1)
        return np.maximum(found / true, true / found)

    def _coded(self, tables: Tables) -> dict[str, dict[str, Codes]]:
        return {
            name: {column: coder.codes(tables[name][column]) for column, coder in coders.items()}
            for name, coders in self.coders.items()
        }

    def _draw_queries(self, rng: np.random.Generator) -> Iterator[_Query]:
        """Yield paths of keys from a private table, each with columns of its tables to ask for one code of."""
        private = [table for table in self._schema.private_tables if self._source[table.name].num_rows]
        for number in _JOINED_TABLES:
            paths = [path for table in private for path in _paths(self._schema, table, number - 1)]
            for _ in range(_QUERIES if paths else 0):
                start, path = paths[int(rng.integers(len(paths)))]
                names = [start, *(key.parent for key in path)]
                columns = [(name, column) for name in dict.fromkeys(names) for column in self.coders[name]]
                chosen = rng.permutation(len(columns))[: int(rng.integers(1, 3))]
                yield _Query(start, path, tuple(columns[place] for place in chosen))

    def _answered(self, tables: Tables, codes: Mapping[str, Mapping[str, Codes]]) -> NDArray[np.float64]:
        """Count the rows of each query: those that have the codes that a random row of the source has."""
        answers = []
        rng = np.random.default_rng(len(self._queries))
        followed: dict[tuple[str, tuple[ForeignKey, ...]], tuple[dict[str, Codes], dict[str, Codes]]] = {}
        for query in self._queries:
            start, path = query.start, query.path
            if (start, path) not in followed:
                followed[start, path] = _follow(self._source, start, path), _follow(tables, start, path)
            true, rows = followed[start, path]
            # In the order of their codes, as a source gives its rows in any order.
            asked = [self._true[name][column][true[name]] for name, column in query.columns]
            drawn = (
                np.lexsort(asked)[int(rng.integers(max(1, len(true[start]))))] if asked and len(true[start]) else None
            )
            kept = np.ones(len(rows[start]), dtype=np.bool_)
            for (name, column), known in zip(query.columns, asked, strict=True):
                if drawn is not None:
                    kept &= codes[name][column][rows[name]] == known[drawn]
            answers.append(float(kept.sum()))
        return np.array(answers)


def means_something(schema: Schema, table: Table, name: str, rows: pa.Table) -> bool:
    """Return whether values of a column can be compared: not if they only identify rows, or are opaque."""
    column = table.column(name)
    if column.type in _OPAQUE or isinstance(column.domain, Pattern):
        return False
    if (name,) in {table.primary_key, *table.unique}:
        return table.public  # public rows are as they were, and what refers to them is comparable
    for key in table.foreign_keys:
        if name in key.columns:
            return schema.table(key.parent).public
    if name in table.primary_key:
        values = rows[name]
        return len(values) > 0 and len(pc.unique(values)) < len(values) / 2
    return True


def _some(pairs: list[tuple[str, str]], rng: np.random.Generator) -> list[tuple[str, str]]:
    if len(pairs) <= _MOST_PAIRS:
        return pairs
    return [pairs[place] for place in sorted(rng.permutation(len(pairs))[:_MOST_PAIRS])]


def _distance(true: Codes, made: Codes, size: int) -> float:
    return float(np.abs(_shares(true, size) - _shares(made, size)).sum() / 2)


def _shares(codes: Codes, size: int) -> NDArray[np.float64]:
    return np.bincount(codes, minlength=size) / max(1, len(codes))


def _paths(schema: Schema, table: Table, length: int) -> Iterator[tuple[str, tuple[ForeignKey, ...]]]:
    """Yield a table with each path of so many keys from it, through different tables."""

    def onward(seen: tuple[str, ...]) -> Iterator[tuple[ForeignKey, ...]]:
        if len(seen) > length:
            yield ()
            return
        for key in schema.table(seen[-1]).foreign_keys:
            if key.parent not in seen:
                yield from ((key, *rest) for rest in onward((*seen, key.parent)))

    yield from ((table.name, path) for path in onward((table.name,)))


def _follow(tables: Tables, start: str, path: Sequence[ForeignKey]) -> dict[str, Codes]:
    """Return the rows of each table on a path that are joined, by table; shape (joined rows,)."""
    found = {start: np.arange(tables[start].num_rows)}
    for key in path:
        child, parent = _parent_rows(tables, key)
        parent_of = np.full(tables[key.child].num_rows, -1)
        parent_of[child] = parent
        here = parent_of[found[key.child]]
        found = {name: rows[here >= 0] for name, rows in found.items()} | {key.parent: here[here >= 0]}
    return found


def _parent_rows(tables: Tables, key: ForeignKey) -> tuple[Codes, Codes]:
    """Return the rows of the child that refer to something, and the row of the parent of each."""
    child = tables[key.child].select(list(key.columns)).rename_columns([f"k{n}" for n in range(len(key.columns))])
    parent = tables[key.parent].select(list(key.parent_columns)).rename_columns(child.column_names)
    child = child.append_column("row", pa.array(np.arange(child.num_rows)))
    parent = parent.append_column("place", pa.array(np.arange(parent.num_rows)))
    with duckdb.connect() as connection:
        connection.register("child", child)
        connection.register("parent", parent)
        on = " AND ".join(f"c.{quote_identifier(n)} = p.{quote_identifier(n)}" for n in child.column_names[:-1])
        found = connection.sql(
            f"SELECT c.row, p.place FROM child c JOIN parent p ON {on} ORDER BY c.row"
        ).to_arrow_table()
    return found["row"].to_numpy(), found["place"].to_numpy()
