"""TPC-H at scale 0.1, changed as the seeds' papers change it, and eight of its queries.

Orders and line items are private, all else is public. The generator draws every foreign key uniformly, so a copy
without any joins would look perfect. PrivPetal (section 6.1, after PrivLava) therefore lets

1. quantities depend on the type and the brand of the part,
2. 15% of the customers have 40% of each year's orders,
3. years have orders of another size: of year y, three in four go unless they have y - 1992 line items,
4. the way of shipping depend on the order's priority.

The papers draw the weights and subsets without giving them; here a fixed seed draws them.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import run as run_command
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.data import read_table
from benchmarks.measure import Runs
from benchmarks.report import machine
from benchmarks.tpch_queries import QUERIES
from benchmarks.tpch_schema import SCHEMA
from benchmarks.workloads import SYNTHESIZERS, Case, Tables, measure
from privbench_core.errors import SourceError
from privbench_core.spec.model import Spec
from privbench_core.workload import Workload
from privbench_core.workload.engine import Engine

EPSILONS = (0.2, 0.4, 0.8, 1.6, 3.2)
RUNS = Runs(1, EPSILONS)
SCALE_FACTOR = 0.1
_SEED = 0


def generate_plain(folder: Path, scale: float) -> None:
    """Write TPC-H of a scale to ``folder``, as tpchgen-cli makes it.

    Raises:
        SourceError: tpchgen-cli is not installed, or fails.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = shutil.which("tpchgen-cli", path=places)
    if command is None:
        raise SourceError("tpchgen-cli: not found; pip install tpchgen-cli")
    arguments = [command, "parquet", "-s", f"{scale:g}", f"--output-dir={folder}"]
    if run_command(arguments, capture_output=True, check=False).returncode:
        raise SourceError("tpchgen-cli: failed; run it by hand to see why")


def generate(folder: Path) -> None:
    """Write TPC-H to ``folder`` and change it; raises as `generate_plain` does."""
    generate_plain(folder, SCALE_FACTOR)
    tables = {table.name: _plain(read_table(folder, table.name)) for table in SCHEMA.tables}
    orders, items, part, customer = (tables[name] for name in ("orders", "lineitem", "part", "customer"))
    rng = np.random.default_rng(_SEED)
    orders, items = _drop_orders(orders, items, rng)
    orders = _redistribute(orders, customer["c_custkey"].to_numpy(), rng)
    items = _weigh_quantities(items, part, rng)
    items = _ship(orders, items, rng)
    for name, rows in {**tables, "orders": orders, "lineitem": items}.items():
        pq.write_table(rows, folder / f"{name}.parquet")


def generate_skewed(folder: Path, scale: float, power: float = 0.9) -> None:
    """Write TPC-H to ``folder`` with references by Zipf's law: of orders to customers, of line items to part suppliers.

    Raises:
        SourceError: tpchgen-cli is not installed, or fails.
    """
    generate_plain(folder, scale)
    tables = {table.name: _plain(read_table(folder, table.name)) for table in SCHEMA.tables}
    rng = np.random.default_rng(_SEED)
    tables["orders"] = refer_by_zipf(tables["orders"], ("o_custkey",), tables["customer"], ("c_custkey",), power, rng)
    tables["lineitem"] = refer_by_zipf(
        tables["lineitem"], ("l_partkey", "l_suppkey"), tables["partsupp"], ("ps_partkey", "ps_suppkey"), power, rng
    )
    for name, rows in tables.items():
        pq.write_table(rows, folder / f"{name}.parquet")


def refer_by_zipf(
    rows: pa.Table,
    columns: Sequence[str],
    parent: pa.Table,
    keys: Sequence[str],
    power: float,
    rng: np.random.Generator,
) -> pa.Table:
    """Return the rows with references to rows of ``parent`` whose popularity falls with their rank, ∝ rank^-power."""
    shares = np.arange(1, parent.num_rows + 1) ** -power
    chosen = pa.array(rng.permutation(parent.num_rows)[rng.choice(len(shares), rows.num_rows, p=shares / shares.sum())])
    for column, key in zip(columns, keys, strict=True):
        rows = _with(rows, column, parent[key].take(chosen))
    return rows


def _plain(rows: pa.Table) -> pa.Table:
    """The rows with views of text as text: Arrow cannot filter those."""
    return rows.cast(without_views(rows.schema))


def without_views(schema: pa.Schema) -> pa.Schema:
    """A schema with text for views of text."""
    return pa.schema([field.with_type(pa.string()) if field.type == pa.string_view() else field for field in schema])


def _years(orders: pa.Table) -> NDArray[np.int64]:
    return pc.year(orders["o_orderdate"]).to_numpy()


def _order_rows(orders: pa.Table, items: pa.Table) -> NDArray[np.int64]:
    """For each line item the row of its order, -1 where it was dropped."""
    return pc.fill_null(pc.index_in(items["l_orderkey"], orders["o_orderkey"].combine_chunks()), -1).to_numpy()


def _drop_orders(orders: pa.Table, items: pa.Table, rng: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    sizes = np.bincount(_order_rows(orders, items), minlength=orders.num_rows)
    kept = (sizes == _years(orders) - 1992) | (rng.random(orders.num_rows) >= 0.75)
    orders = orders.filter(pa.array(kept))
    return orders, items.filter(pc.is_in(items["l_orderkey"], orders["o_orderkey"].combine_chunks()))


def _redistribute(orders: pa.Table, customers: NDArray[np.int64], rng: np.random.Generator) -> pa.Table:
    years, chosen = _years(orders), np.empty(orders.num_rows, np.int64)
    for year in np.unique(years):
        here = rng.permutation(np.flatnonzero(years == year))
        shuffled = rng.permutation(customers)
        few, many = np.split(shuffled, [round(0.15 * len(shuffled))])
        cut = round(0.4 * len(here))
        chosen[here[:cut]] = rng.choice(few, cut)
        chosen[here[cut:]] = rng.choice(many, len(here) - cut)
    return _with(orders, "o_custkey", pa.array(chosen))


def _weigh_quantities(items: pa.Table, part: pa.Table, rng: np.random.Generator) -> pa.Table:
    weights = np.ones(part.num_rows)
    for column, most in (("p_type", 1.0), ("p_brand", 2.0)):
        kinds = part[column].cast(pa.string()).combine_chunks().dictionary_encode()
        weights *= rng.uniform(0.2, most, len(kinds.dictionary))[kinds.indices.to_numpy()]
    rows = pc.index_in(items["l_partkey"], part["p_partkey"].combine_chunks()).to_numpy()
    quantities = items["l_quantity"].cast(pa.float64()).to_numpy() * weights[rows]
    changed = pa.array(np.round(quantities, 2)).cast(pa.decimal128(15, 2), safe=False)
    return _with(items, "l_quantity", changed)


def _ship(orders: pa.Table, items: pa.Table, rng: np.random.Generator) -> pa.Table:
    urgent = pc.is_in(orders["o_orderpriority"].cast(pa.string()), pa.array(["1-URGENT", "2-HIGH"])).to_numpy()
    by_air = rng.random(items.num_rows) < np.where(urgent[_order_rows(orders, items)], 0.5, 0.1)
    air = rng.choice(["AIR", "REG AIR"], items.num_rows)
    ground = rng.choice(["FOB", "MAIL", "RAIL", "SHIP", "TRUCK"], items.num_rows)
    return _with(items, "l_shipmode", pa.array(np.where(by_air, air, ground)))


def _with(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)


def run(runs: Runs = RUNS) -> str:
    """Measure and return Markdown text, by default at δ = 1 / line items and in pure DP.

    Raises:
        SourceError: TPC-H cannot be generated.
    """
    with TemporaryDirectory() as place:
        source = Path(place) / "source"
        source.mkdir()
        generate(source)
        folder = Path(place)
        spec = Spec(SCHEMA, str(source), folder / "tpch.yaml", EPSILONS, 1e-9, 20.0, 1e-7, state=folder / "state")
        case = Case.of(spec, lambda *_: {"eight queries": Workload.of(QUERIES.values())})
        chosen = runs.at(1 / case.source["lineitem"].num_rows, 0.0)
        figures = measure(case, chosen, more=relative_errors, synthesizers=SYNTHESIZERS)
        sizes = ", ".join(f"{case.source[name].num_rows:,} {name}" for name in ("orders", "lineitem"))
    return f"{machine(runs.seeds)} {sizes}.\n\n{figures}"


def relative_errors(source: Tables, synthetic: Tables) -> dict[str, float]:
    """The papers' figure: per query, the mean of |synthetic - true| / true over the values it returns.

    Rows are matched by what they are grouped by; a missing group counts as a value of 0.
    """
    engines = Engine(source), Engine(synthetic)
    found = {}
    for name, sql in QUERIES.items():
        true, other = (_values(engine.rows(engine.resolve(sql).tree)) for engine in engines)
        errors = [abs(other.get(place, 0.0) - value) / abs(value) for place, value in true.items() if value]
        found[name] = float(np.mean(errors)) if errors else float("nan")
    return found


def _values(rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], float]:
    """Numbers by (what they are grouped by, position): groups are texts and years, and stand first."""
    values = {}
    for row in rows:
        grouped = tuple(item for item in row if isinstance(item, str))
        numbers = [item for item in row if not isinstance(item, str)]
        if len(numbers) > 1 and isinstance(numbers[0], int) and 1992 <= numbers[0] <= 1998:
            grouped, numbers = (*grouped, numbers[0]), numbers[1:]
        values |= {(*grouped, i): float(number or 0) for i, number in enumerate(numbers)}
    return values
