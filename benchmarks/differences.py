"""How far columns that belong together are apart: learned each by itself, and with ``relative_to``.

A hospital whose stays have an admission and a discharge, a bill and its payment, a price and its tax; the rentals of
sakila with their returns; and, along owner keys, purchases after their customer's first day with parcels after the
purchase. Both specs have the same checks and the same price; beside them stands the source with every column shuffled.
What is compared is the distribution of the difference, and of the later column, over cells that hold equal shares of
the source's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.data import data_folder, read_table
from benchmarks.measure import Runs
from benchmarks.report import Row, machine, markdown, medians
from benchmarks.workloads import SHUFFLED, Case, Tables, made_by
from privbench_core.errors import SourceError
from privbench_core.evaluation import shuffled_reference
from privbench_core.schema.columns import Column, ColumnType, Learn, Relative
from privbench_core.schema.constraints import Check
from privbench_core.schema.tables import Schema, Table
from tests.helpers.heavy_tails import Database
from tests.helpers.planted import integer, owner_key, place_of, rows_of
from tests.helpers.relatives import OWNERS, PAIRS, distances, hospital, mail_order, numbers, of_owners

RUNS = Runs(3, (0.8, 3.2), (1e-9,))
_CELLS = 50
_METHODS = {"each by itself": False, "relative_to": True}


@dataclass(frozen=True)
class _Source:
    """A database, made with and without ``relative_to``, and its pairs of columns.

    Attributes:
        name: Of the database.
        make: Its schema and rows, with and without ``relative_to``.
        pairs: Later column -> the column that it belongs to.
        rows: Of these tables the rows that have a later column, and beside it the one that it belongs to.
    """

    name: str
    make: Callable[[bool], Database]
    pairs: Mapping[str, str]
    rows: Callable[[Tables, str], pa.Table]


def run(runs: Runs = RUNS, data: Path | None = None) -> str:
    """Measure, and return Markdown text."""
    rows: list[Row] = []
    for source in _sources(data, runs.progress):
        specs = {}
        with TemporaryDirectory() as folder:
            for method, relative in _METHODS.items():
                schema, tables = source.make(relative)
                specs[method] = place_of(Path(folder) / method.replace(" ", "_"), schema, tables).spec
            case = Case.of(specs["relative_to"], lambda _spec, _rows: {})
            true = case.source
            for seed in range(runs.seeds):
                made = shuffled_reference(case.spec.schema, case.source, seed)
                rows += _figures(source, {"method": SHUFFLED, "ε": "-"}, true, made)
            for (delta, epsilon), (method, spec), seed in product(runs.budgets, specs.items(), range(runs.seeds)):
                runs.progress(f"differences: {source.name}, {method}, epsilon {epsilon:g}, seed {seed}")
                made, _ = made_by(spec.path, epsilon, delta, seed)
                rows += _figures(source, {"method": method, "ε": f"{epsilon:g}"}, true, made)
    return f"{machine(runs.seeds)}\n\n{markdown(medians(rows, ('database', 'columns', 'method', 'ε')))}"


def _figures(source: _Source, cell: dict[str, str], true: Tables, made: Tables) -> Iterator[Row]:
    for later, earlier in source.pairs.items():
        rows, column = [source.rows(each, later) for each in (true, made)], later.rpartition(".")[2]
        of_source, of_rows = (distances(each, column, earlier) for each in rows)
        columns = {"database": source.name, "columns": f"{earlier}, {later}"}
        known = [part[~np.isnan(part)] for part in (of_source, of_rows)]
        yield {
            **columns,
            **cell,
            "TVD of the difference": _distance(of_source, of_rows),
            "mean, source": float(known[0].mean()),
            "mean": float(known[1].mean()),
            "TVD of the later column": _distance(*(numbers(each.column(column)) for each in rows)),
        }


def _distance(source: NDArray[np.float64], made: NDArray[np.float64]) -> float:
    """Total variation distance over cells between quantiles of the source, and NULL."""
    edges = np.unique(np.nanquantile(source, np.arange(1, _CELLS) / _CELLS))
    shares = [_shares(edges, each) for each in (source, made)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _shares(edges: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    cells = np.where(np.isnan(values), len(edges) + 1, np.searchsorted(edges, values))
    return np.asarray(np.bincount(cells, minlength=len(edges) + 2) / max(len(values), 1))


def _sources(data: Path | None, progress: Callable[[str], None]) -> Iterator[_Source]:
    yield _Source("hospital", lambda relative: hospital(relative=relative), PAIRS, lambda tables, _: tables["stay"])
    schema, _ = mail_order(1)
    yield _Source("mail order", lambda relative: mail_order(relative=relative), OWNERS, partial(of_owners, schema))
    try:
        place = data_folder(data) / "sakila"
    except SourceError as missing:
        progress(f"differences: sakila is left out: {missing}")
        return
    pairs = {"return_date": "rental_date"}
    yield _Source("sakila", partial(_rentals, place), pairs, lambda tables, _: tables["rental"])


def _rentals(folder: Path, relative: bool) -> Database:
    """Customers and their rentals: when, and when returned."""
    kinds = {"customer": ("customer_id", "store_id"), "rental": ("rental_id", "customer_id", "rental_date")}
    rented = read_table(folder, "rental").select([*kinds["rental"], "return_date"])
    moment = ColumnType.TIMESTAMP
    returned = Column("return_date", moment, Learn(), nullable=True)
    if relative:
        returned = replace(returned, domain=None, relative=Relative("rental_date", Learn()))
    customer = Table("customer", (integer("customer_id"), integer("store_id", 1, 2)), ("customer_id",))
    rental = Table(
        "rental",
        (integer("rental_id"), integer("customer_id"), Column("rental_date", moment, Learn()), returned),
        ("rental_id",),
        (replace(owner_key("rental", "customer_id", "customer", 60), parent_columns=("customer_id",)),),
        checks=(Check("returned_last", "rental_date <= return_date"),),
    )
    people = read_table(folder, "customer").select(list(kinds["customer"]))
    tables = {
        table.name: rows_of(table, **{c.name: rows.column(c.name).combine_chunks() for c in table.columns})
        for table, rows in ((customer, people), (rental, rented))
    }
    return Schema("sakila", (customer, rental), "customer"), tables
