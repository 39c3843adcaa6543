"""The engine of rows that stay in a database: sums over groups come out of it, rows do not."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privbench_core.arrays import order_within
from privbench_core.backends.integrity import BLOCK, RowDigest
from privbench_core.columns.codec import Codes
from privbench_core.columns.differences import differences_of_numbers
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.exact_sums import LARGEST, contingency
from privbench_core.columns.group_codes import agreement_codes
from privbench_core.engines.sql import Database, column, count
from privbench_core.engines.sql.counting import covering, next_siblings, whole_units
from privbench_core.engines.sql.relations import RowChecks, Tables, keep_rows
from privbench_core.engines.sql.views import ORDER, OWNER_ROW, ROWS_OF_UNIT, UNIT, WEIGHT, StoredNumber, Views
from privbench_core.engines.stored import LoadedRows, canonical, numbered, unit_divisors, unit_weights
from privbench_core.estimators.coarsening import merge_codes
from privbench_core.privacy.clipping import UnitsOfRows
from privbench_core.privacy.features import (
    CoMember,
    Feature,
    MemberPlace,
    Own,
    OwnerType,
    OwnType,
    SiblingAgreement,
    SincePrevious,
    feature_size,
)
from privbench_core.privacy.permutations import PERMUTATION_SCALE, Groups
from privbench_core.privacy.relations import WEIGHT_SCALE, carries
from privbench_core.privacy.views import CodedRows, Groupings, HeldRows, ReferenceRows, ReferenceSums, Scales, ViewSpec
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table

_BATCH = 1 << 17  # rows whose codes are counted at a time: more of them take new memory, and twice the time


class SqlEngine:
    """Finds and counts the rows of views in a database.

    Args:
        schema: The validated schema.
        database: Can load the private tables of ``schema``.
        secret: Keys the hash that decides which children beyond τ are dropped.
        unhashed: Tables that no fingerprint will be asked for.
    """

    def __init__(self, schema: Schema, database: Database, secret: bytes, unhashed: Collection[str] = ()) -> None:
        self.schema = schema
        self._database = database
        self._tables = Tables(schema, database, secret)
        self._unhashed = frozenset(unhashed)
        self._views = Views(self._tables, self._latent)
        self._public_rows: dict[str, int] = {}
        self._made: list[str] = []
        self._numbered = 0
        self._loaded: dict[str, LoadedRows] = {}

    def load(self, public: Mapping[str, pa.Table]) -> None:
        """Load all tables: private ones as the database has them, public ones from memory, where they are known.

        Raises:
            SourceError: Rows cannot be read.
        """
        for table in self.schema.tables:
            name = self._tables.read(table.name)
            if table.public:
                self._public_rows[table.name] = public[table.name].num_rows
                self._database.insert(name, numbered(table, public[table.name]))
            else:
                hashed = table.name not in self._unhashed
                self._loaded[table.name] = self._database.load(table, name, hashed=hashed)

    def fingerprint(self, table: Table) -> str:
        """See `backends.integrity.fingerprint_rows`: of the rows as they were loaded, before `keep`."""
        if (known := self._loaded[table.name].fingerprint) is not None:
            return known
        stored = self._tables.columns(table.name, [column.name for column in table.columns])
        rows = exp.select(*map(column, stored)).from_(self._tables.read(table.name))
        total = self._number(exp.select(exp.alias_(count(), "rows")).from_(self._tables.read(table.name)))
        digest = RowDigest(table, table.arrow_schema, total)
        key = map(column, self._tables.columns(table.name, table.primary_key))
        for batch in self._database.batches(rows.order_by(*key), BLOCK):
            digest.add(canonical(table, batch))
        return digest.finished()

    def keep(self, orphans: Mapping[str, str]) -> None:
        """Check the rows, and find those that are kept; the others are deleted.

        Raises:
            SourceError: Rows break the spec, see `backends.integrity.check_rows`.
        """
        unique = {name for name, loaded in self._loaded.items() if loaded.in_order}
        RowChecks(self._tables, unique).check(orphans)
        waiting = list(self.schema.private_tables)
        done: set[str] = set()
        while waiting:
            table = next(t for t in waiting if all(k.parent in done for k in t.foreign_keys if carries(self.schema, k)))
            keep_rows(self._tables, table)
            waiting.remove(table)
            done.add(table.name)

    def coded(self, spec: ViewSpec) -> SqlRows:
        """See `Engine.coded`: nothing is read until something is asked."""
        return SqlRows(self, spec)

    def references(self, key: ForeignKey, most: int, bounded: int | None = None) -> ReferenceRows:
        """See `Engine.references`: only the total weight of each parent's rows is fetched."""
        parents = self._public_rows.get(key.parent)
        summed = cache(partial(self._sums, self._views.references(key, most, bounded), parents))
        if bounded is not None:
            return ReferenceRows(summed)
        return ReferenceRows(summed, partial(self._sums, self._views.clipped_references(key, most), parents))

    def values(self, table: str, column: str, named: tuple[str, ...], most: int) -> ReferenceRows:
        """See `Engine.values`: no text is fetched."""
        return ReferenceRows(cache(partial(self._sums, self._views.values(table, column, named, most), None)))

    def texts(self, table: str, column: str, named: tuple[str, ...]) -> dict[str, dict[int, int]]:
        found = self._database.fetch(self._views.texts(table, column, named))
        result: dict[str, dict[int, int]] = {}
        for row in found.to_pylist():
            result.setdefault(row["key"], {})[int(row["held"])] = int(row["number"])
        return result

    def end_step(self) -> None:
        while self._made:
            self._database.drop(self._made.pop())

    def close(self) -> None:
        """Delete all rows, and disconnect."""
        self._database.close()

    def keep_coded(self, query: exp.Select) -> str:
        """Make a table of coded rows, until the step ends, and return its name."""
        self._numbered += 1
        name = self._tables.made("view", self._numbered)
        self._database.create(name, query)
        self._made.append(name)
        return name

    def _latent(self, feature: OwnType | OwnerType) -> str:
        """Make a table of latent values, see `memory.database`: codes are fetched, and types are sent back."""
        key, types = feature.key, feature.types
        columns: dict[str, tuple[Feature, Discretizer]] = {
            f"of {place}": (of, coder) for place, (of, coder, _) in enumerate(types.columns)
        }
        query, called = self._views.groups(ViewSpec(key.child, columns))
        found = self._database.fetch(query)
        found = found.filter(found.column("owner").is_valid()).sort_by("owner")
        parents, starts = np.unique(found.column("owner").to_numpy().astype(np.int64), return_index=True)
        sizes = np.diff(np.append(starts, found.num_rows))
        codes = [found.column(called[name]).to_numpy() for name in columns]
        latent = types.latent_values(feature.latent, sizes, codes)
        self._numbered += 1
        name = self._tables.made("types", self._numbered)
        self._database.insert(name, pa.table({"n": pa.array(parents), "latent": pa.array(latent)}))
        self._made.append(name)
        return name

    def _sums(self, query: exp.Select, parents: int | None) -> ReferenceSums:
        found = self._database.fetch(query)
        key, totals = found.column("key"), found.column("total").to_numpy().astype(np.int64)
        there = key.is_valid().to_numpy()
        # Of a private parent nothing is said by which row it is.
        rows = np.arange(there.sum()) if parents is None else key.fill_null(0).to_numpy().astype(np.int64)[there]
        return ReferenceSums(rows, totals[there], int(totals[~there].sum()), parents)

    def _number(self, query: exp.Select) -> int:
        return int(self._database.fetch(query).column(0)[0].as_py() or 0)


class SqlRows(CodedRows):
    """The coded rows of a view in the database: a query, which becomes a table when it is read again."""

    def __init__(self, engine: SqlEngine, spec: ViewSpec) -> None:
        self._engine = engine
        self._spec = spec
        self._sizes = {name: feature_size(*how) for name, how in spec.features.items()}
        self._members = {name: of.member for name, (of, _) in spec.features.items() if isinstance(of, CoMember)}
        # Siblings are compared here where rows come in their order: then a row's own value, or its code, is asked for.
        near = engine._database.near and spec.bounded is None
        agreeing = {n: of for n, (of, _) in spec.features.items() if near and isinstance(of, SiblingAgreement)}
        here = engine.schema.table(spec.table)
        self._since = {
            n: of
            for n, (of, _) in spec.features.items()
            if near and isinstance(of, SincePrevious) and here.column(of.column).type is not ColumnType.DECIMAL
        }
        self._compared = frozenset({*agreeing, *self._since})
        windows = frozenset(n for n, (of, _) in spec.features.items() if isinstance(of, MemberPlace | SincePrevious))
        self._reordered = windows - self._compared  # rows come in the order of their owners and values
        self._features: dict[str, Any] = dict(spec.features)
        self._features |= {n: (Own(of.column), of.coder) for n, of in agreeing.items()}
        self._features |= {n: (StoredNumber(of.column), spec.features[n][1]) for n, of in self._since.items()}
        self._weighted = bool(engine.schema.ownership_path(spec.table)) or spec.bounded is not None
        self._counted: dict[frozenset[str], tuple[tuple[str, ...], NDArray[np.int64]]] = {}
        self._held: HeldRows | None = None
        self._scans = 0
        self._table: tuple[str, dict[str, str]] | None = None

    def prepare(self, marginals: Sequence[tuple[str, ...]]) -> None:
        """See `CodedRows.prepare`: marginals are counted in few scans."""
        if self._held is not None or self._members:
            return
        asked = {frozenset(columns): tuple(dict.fromkeys(columns)) for columns in marginals if columns}
        new = [columns for group, columns in asked.items() if self._joint(group) not in self._counted]
        # Marginals of proper subsets are sums of the joint one.
        parts = {
            frozenset(part) for names in new for size in range(1, len(names)) for part in combinations(names, size)
        }
        wanted = [columns for columns in new if frozenset(columns) not in parts]
        if wanted and self._engine._database.near:
            self._count_here(list(dict.fromkeys(covering(wanted, self._sizes).values())))
        elif wanted:
            many = self._engine._database.scans
            together = 32  # marginals in one scan; measured: more of them save no time, and each has a hash table
            if self._scans + math.ceil(len(wanted) / together) > many:
                self._scans = many
            for start in range(0, len(wanted), together):
                self._count(wanted[start : start + together])

    def _joint(self, columns: frozenset[str]) -> frozenset[str]:
        """Return columns that were counted together, these among them, if there are some."""
        return columns if columns in self._counted else next((c for c in self._counted if columns < c), columns)

    def counts(self, columns: Sequence[str]) -> NDArray[np.int64]:
        if self._held is not None or self._members or len(set(columns)) < len(columns):
            return self.held().counts(columns)
        if not columns:
            return np.array(min(self._total(), LARGEST), dtype=np.int64)
        self.prepare([tuple(columns)])
        order, found = self._counted[self._joint(frozenset(columns))]
        others = tuple(place for place, name in enumerate(order) if name not in columns)
        left = [name for name in order if name in columns]
        return np.asarray(found.sum(axis=others)).transpose([left.index(name) for name in columns])

    def clipped_counts(self, columns: Sequence[str], groups: Groupings, scales: Scales = ()) -> NDArray[np.int64]:
        """See `CodedRows.clipped_counts`: what is one row per unit and cell is summed up where the rows are.

        In this process, codes are counted as they come, in the order of their units.
        """
        sizes = [int(of.max(initial=-1)) + 1 for of in groups] or [self._sizes[name] for name in columns]
        if not self._weighted:  # every row is a unit
            return merge_codes(self.counts(columns), groups) if groups else self.counts(columns)
        counts = np.zeros(math.prod(sizes), dtype=np.int64)
        if self._engine._database.near:
            for codes, units, numbers in self._by_unit(columns):
                of_rows = partial(UnitsOfRows, self._spec.rows_per_unit[0], units, numbers)
                held = HeldRows(codes, self._sizes, numbers, len(numbers), units=of_rows)
                counts += held.clipped_counts(columns, groups, scales).ravel()
            return counts.reshape(sizes)
        coded, called = self._coded(columns, units=True)
        group_of = groups or (None,) * len(columns)
        cells = {called[name]: group_of[place] for place, name in enumerate(columns)}
        lengths = dict(zip(cells, scales, strict=bool(scales)))
        query = self._engine._views.clipped(coded, cells, self._spec.rows_per_unit[0], lengths)
        summed = self._engine._database.fetch(query)
        cell = [summed.column(name).to_numpy().astype(np.int64) for name in cells]
        counts[np.ravel_multi_index(cell, sizes)] = summed.column("total").to_numpy()
        return counts.reshape(sizes)

    def held(self) -> HeldRows:
        """See `CodedRows.held`: codes and weights leave the database, as whole numbers, and nothing else does."""
        if self._held is None:
            self._held = self._fetched_groups() if self._members else self._fetched()
        return self._held

    def _total(self) -> int:
        query, _ = self._engine._views.coded(replace(self._spec, features={}))
        inner = query if self._weighted else query.select(exp.alias_(exp.Literal.number(1), WEIGHT))
        summed = exp.cast(exp.Sum(this=column(WEIGHT)), exp.DataType.Type.BIGINT)
        return self._engine._number(exp.select(exp.alias_(summed, "total")).from_(inner.subquery("coded")))

    def _coded(
        self, names: Sequence[str], *, weighed: bool = True, units: bool = False
    ) -> tuple[exp.Select, dict[str, str]]:
        """Return a query for the codes of some columns, and what it calls each; a table has weights and units."""
        if self._scans < self._engine._database.scans:
            self._scans += 1
            features = {name: self._features[name] for name in names}
            return self._engine._views.coded(replace(self._spec, features=features), weighed=weighed, units=units)
        if self._table is None:
            query, called = self._engine._views.coded(replace(self._spec, features=self._features), units=True)
            self._table = self._engine.keep_coded(query), called
        table, called = self._table
        wanted = [called[name] for name in names] + [WEIGHT] * self._weighted + [UNIT, ROWS_OF_UNIT] * units
        wanted += [OWNER_ROW, ORDER] * (units and self._engine._database.near)
        return exp.select(*map(column, wanted)).from_(table), called

    def _count(self, marginals: Sequence[tuple[str, ...]]) -> None:
        """Count some marginals in one scan of the coded rows."""
        names = list(dict.fromkeys(name for columns in marginals for name in columns))
        coded, known = self._coded(names)
        called = {name: column(known[name]) for name in names}
        summed = exp.Sum(this=column(WEIGHT)) if self._weighted else count()
        query = exp.select(*called.values(), exp.alias_(exp.cast(summed, exp.DataType.Type.BIGINT), "total"))
        query = query.from_(coded.subquery("coded"))
        sets = [exp.Tuple(expressions=[called[name].copy() for name in columns]) for columns in marginals]
        query.set("group", exp.Group(grouping_sets=[exp.GroupingSets(expressions=sets)]))
        found = self._engine._database.fetch(query)
        totals = found.column("total").to_numpy()
        there = {name: found.column(known[name]).is_valid().to_numpy() for name in names}
        codes = {name: found.column(known[name]).fill_null(0).to_numpy().astype(np.int64) for name in names}
        for columns in marginals:
            # Codes are never NULL: a row of the result is of the marginal over the columns that are there.
            mine = np.ones(len(totals), dtype=bool)
            for name in names:
                mine &= there[name] == (name in columns)
            shape = tuple(self._sizes[name] for name in columns)
            cells = np.zeros(math.prod(shape), dtype=np.int64)
            cells[np.ravel_multi_index([codes[name][mine] for name in columns], shape)] = totals[mine]
            self._counted[frozenset(columns)] = columns, cells.reshape(shape)

    def _count_here(self, marginals: Sequence[tuple[str, ...]]) -> None:
        """Count some marginals of codes that come in parts."""
        names = list(dict.fromkeys(name for columns in marginals for name in columns))
        sizes = {name: self._sizes[name] for name in names}
        cells = {columns: np.zeros([sizes[name] for name in columns], dtype=np.int64) for columns in marginals}
        for codes, weights in self._weighed(names):
            for columns in marginals:
                cells[columns] += contingency(codes, sizes, columns, weights)
        self._counted |= {frozenset(columns): (columns, found) for columns, found in cells.items()}

    def _weighed(self, names: Sequence[str]) -> Iterator[tuple[dict[str, Codes], NDArray[np.integer[Any]] | None]]:
        """Yield codes and weights of the rows, as they come."""
        if self._compared.intersection(names):
            for codes, _, numbers in self._by_unit(names):
                yield codes, unit_weights(numbers, self._spec.rows_per_unit)
            return
        coded, called = self._coded(names, weighed=False)
        for batch in self._engine._database.batches(coded, _BATCH):
            weights = batch.column(WEIGHT).to_numpy() if self._weighted else None
            if weights is not None and self._table is None and self._spec.bounded is None:
                weights = unit_weights(weights, self._spec.rows_per_unit)
            yield {name: batch.column(called[name]).to_numpy() for name in names}, weights

    def _by_unit(self, names: Sequence[str]) -> Iterator[tuple[dict[str, Codes], NDArray[np.int64], NDArray[np.int64]]]:
        """Yield codes of the rows, their units and how many rows these have: whole units in parts, siblings in order.

        Units with more than U rows weigh nothing, and are left out.
        """
        coded, called = self._coded(names, units=True)
        compared = self._compared.intersection(names)
        order = [UNIT, *(OWNER_ROW, ORDER) * bool(compared)]
        found = exp.select(*(called[name] for name in names), ROWS_OF_UNIT, *order).from_(coded.subquery("coded"))
        found = found.where(f"{ROWS_OF_UNIT} <= {WEIGHT_SCALE}")
        joined = self._table is not None or coded.args.get("joins")
        if joined or self._reordered.intersection(names):  # a scan of the kept rows alone is in their order
            found = found.order_by(*order)
        for rows in whole_units(self._engine._database.batches(found, _BATCH)):
            codes = {name: rows.column(called[name]).to_numpy() for name in names if name not in self._since}
            units, numbers = (rows.column(name).to_numpy() for name in (UNIT, ROWS_OF_UNIT))
            for name in compared & self._since.keys():
                codes[name] = self._since_previous(rows, rows.column(called[name]), name)
            agreeing = compared - self._since.keys()
            siblings = next_siblings(rows) if agreeing else units
            for name in agreeing:
                codes[name] = agreement_codes(codes[name], np.where(siblings < 0, -1, codes[name][siblings]))
            yield codes, units, numbers

    def _since_previous(self, rows: pa.Table, values: pa.ChunkedArray, name: str) -> Codes:
        """Return codes of how far values of whole units, siblings in order, lie above those before them."""
        owners = rows.column(OWNER_ROW).fill_null(-1).to_numpy()
        numbers = values.cast(pa.int64()).fill_null(0).to_numpy()
        inside = np.flatnonzero(values.is_valid().to_numpy() & (owners >= 0))
        ordered = inside[order_within(owners[inside], numbers[inside])]
        starts, missing = np.zeros_like(numbers), np.ones(len(numbers), dtype=bool)
        starts[ordered[1:]] = numbers[ordered[:-1]]
        missing[ordered[1:]] = np.diff(owners[ordered]) != 0
        of = self._engine.schema.table(self._spec.table).column(self._since[name].column)
        found = differences_of_numbers(of, numbers, starts, missing)
        return self._spec.features[name][1].encode(pa.chunked_array([found]))

    def _fetched(self) -> HeldRows:
        if not self._sizes and not self._weighted:
            return HeldRows({}, self._sizes, None, self._total())
        if self._compared:
            parts = list(self._weighed(list(self._sizes)))
            joined = {
                name: np.concatenate([np.zeros(0, np.uint8), *(c[name] for c, _ in parts)]) for name in self._sizes
            }
            of_rows = np.concatenate([np.zeros(0, np.int64), *(weights for _, weights in parts)])
            return HeldRows(joined, self._sizes, of_rows, len(of_rows))
        query, called = self._coded(list(self._sizes))
        found = self._engine._database.fetch(query)
        weights = found.column(WEIGHT).to_numpy() if self._weighted else None
        return HeldRows(self._codes(found, called), self._sizes, weights, found.num_rows)

    def _fetched_groups(self) -> HeldRows:
        query, called = self._engine._views.groups(self._spec)
        found = self._engine._database.fetch(query)
        owners = found.column("owner")
        alone = owners.is_null().to_numpy()
        named = owners.fill_null(0).to_numpy().astype(np.int64)
        owner = np.where(alone, named.max(initial=0) + 1 + np.arange(len(named)), named)
        order = np.argsort(owner, kind="stable")
        size = found.column("g").to_numpy().astype(np.int64)[order]
        rows = found.column("s").to_numpy().astype(np.int64)[order]
        shares = size * (PERMUTATION_SCALE // unit_divisors(rows, self._spec.rows_per_unit))
        groups = Groups(owner[order], size, shares)
        codes = {name: values[order] for name, values in self._codes(found, called).items()}
        return HeldRows(codes, self._sizes, groups.weights(1), len(rows), self._members, groups)

    def _codes(self, found: pa.Table, called: Mapping[str, str]) -> dict[str, NDArray[Any]]:
        smallest = {name: np.min_scalar_type(max(size - 1, 0)) for name, size in self._sizes.items()}
        return {name: found.column(called[name]).to_numpy().astype(smallest[name]) for name in self._sizes}
