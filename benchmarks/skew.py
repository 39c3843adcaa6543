"""Values that many rows share: how exactly skewed columns come back, with and without closer looks at heavy cells.

One made-up table, so that its columns compete for the budget as they do in practice. Nothing of it is fitted to the
method: prices end in 9 cents and follow Zipf's law, amounts are log-normal with five spikes, numbers below a thousand
millions share one default, moments are whole days, and three columns have no skew to find.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.measure import Runs
from benchmarks.report import Row, machine, markdown, medians
from benchmarks.subject import learn_and_sample
from privbench_core.columns.grid import Grid
from privbench_core.profiles import measure_bins as refine
from privbench_core.schema.columns import Column, ColumnType, Learn, Range
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING

SIZES = (2_000, 100_000)
RUNS = Runs(3, (0.2, 0.8, 3.2), (1e-9, 0.0))
SHOWN = {
    "Top 5, error": ("uniform", "near-unique"),
    "TVD, values": ("uniform", "near-unique"),
    "TVD, bins": (),
    "Distinct": (),
}
"""The tables of the README, and the columns of which a table says nothing: hardly a value occurs twice there."""

_DAY = 86_400_000_000
_EVEN_BINS = 100
_TOP = 5

TABLE = Table(
    "skewed",
    (
        Column("id", ColumnType.INTEGER),
        Column("price, Zipf", ColumnType.DECIMAL, Range(0, 10_000), precision=12, scale=2),
        Column("amount, 5 spikes", ColumnType.DECIMAL, Learn(), precision=12, scale=2),
        Column("number, 1 default", ColumnType.INTEGER, Range(0, 999_999_999)),
        Column("weight, 2 spikes", ColumnType.FLOAT, Range(0, 500)),
        Column("moment, midnight", ColumnType.TIMESTAMP, Range("2020-01-01", "2024-12-31T23:59:59.999999")),
        Column("age", ColumnType.INTEGER, Range(0, 110)),
        Column("uniform", ColumnType.INTEGER, Range(1, 1_000_000)),
        Column("near-unique", ColumnType.INTEGER, Range(1, 2_000_000_000)),
    ),
    ("id",),
)


def rows(n: int, seed: int = 0) -> pa.Table:
    """``n`` rows of `TABLE`."""
    rng = np.random.default_rng(seed)
    cents = 100 * np.unique(rng.integers(1, 10_000, 400)) - 1
    rank = rng.permutation(len(cents)) + 1
    spiked = np.array([999, 1999, 4999, 10_000, 25_000])[rng.choice(5, n, p=[0.4, 0.25, 0.15, 0.1, 0.1])]
    amount = np.where(rng.random(n) < 0.5, spiked, np.rint(rng.lognormal(8.5, 1.5, n)).astype(np.int64) + 1)
    number = np.where(rng.random(n) < 0.3, 123_456_789, rng.integers(0, 10**9, n))
    weight = np.select([rng.random(n) < 0.2, rng.random(n) < 0.1], [9.99, 72.5], np.minimum(rng.gamma(4, 20, n), 500))
    days = np.datetime64("2020-01-01", "us").astype(np.int64) + _DAY * rng.integers(0, 1827, n)
    moment = np.where(rng.random(n) < 0.25, np.datetime64("2020-01-01", "us").astype(np.int64), days)
    columns = [
        np.arange(n),
        _decimals("price, Zipf", rng.choice(cents, n, p=(1 / rank) / (1 / rank).sum())),
        _decimals("amount, 5 spikes", np.minimum(amount, 10**11)),
        number,
        weight,
        moment,
        np.clip(rng.normal(42, 18, n), 0, 110).astype(np.int64),
        rng.integers(1, 1_000_001, n),
        rng.choice(2_000_000_000, n, replace=False) + 1,
    ]
    types = TABLE.arrow_schema
    return pa.table([pa.array(c).cast(field.type) for c, field in zip(columns, types, strict=True)], schema=types)


def run(runs: Runs = RUNS) -> str:
    """Measure and return Markdown text."""
    found: list[Row] = []
    for n in SIZES:
        source = rows(n)
        for delta, epsilon in runs.budgets:
            for method, share in (("one look", 0.0), ("closer looks", TUNING.detail_share)):
                for seed in range(runs.seeds):
                    runs.progress(f"skew: n={n} δ={delta:g} ε={epsilon:g} {method} {seed}")
                    with patch.object(refine, "TUNING", replace(TUNING, detail_share=share)):
                        made, _, _ = learn_and_sample(TABLE, source, epsilon, delta, seed)
                    head = {"rows": f"{n:,}", "δ": f"{delta:g}", "ε": f"{epsilon:g}", "method": method}
                    pairs = {name: (source.column(name), made.column(name)) for name in made.column_names[1:]}
                    found += [{**head, "column": name} | compare(*pair) for name, pair in pairs.items()]
    keys = ["rows", "δ", "ε", "method"]
    figures = medians(found, [*keys, "column"])
    tables = [f"**{what}**\n\n{markdown(_pivoted(figures, keys, what, left_out))}" for what, left_out in SHOWN.items()]
    return "\n\n".join([machine(runs.seeds), *tables])


def compare(source: pa.ChunkedArray, made: pa.ChunkedArray) -> dict[str, float]:
    """How far the values of two columns are apart.

    Returns:
        "Top 5, error": mean |share - share| of the source's five most common values, as a part of their mean share.
        "TVD, values": over each distinct value for itself. "TVD, bins": over equal bins of the source's range.
        "Distinct": distinct values made per distinct value of the source.
    """
    one, other = (_numbers(column) for column in (source, made))
    values, counts = np.unique(one, return_counts=True)
    made_values, made_counts = np.unique(other, return_counts=True)
    shares, made_shares = counts / len(one), made_counts / max(len(other), 1)
    place = np.minimum(np.searchsorted(made_values, values), len(made_values) - 1)
    same = np.where(made_values[place] == values, made_shares[place], 0.0)
    top = np.argsort(-shares, kind="stable")[:_TOP]
    edges = np.linspace(one.min(), one.max(), _EVEN_BINS + 1)
    binned, made_binned = (np.histogram(np.clip(x, edges[0], edges[-1]), edges)[0] / len(x) for x in (one, other))
    return {
        "Top 5, error": float(np.abs(shares - same)[top].sum() / shares[top].sum()),
        "TVD, values": 1 - float(np.minimum(shares, same).sum()),
        "TVD, bins": float(np.abs(binned - made_binned).sum() / 2),
        "Distinct": len(made_values) / len(values),
    }


def _pivoted(figures: Sequence[Row], keys: Sequence[str], what: str, left_out: Sequence[str]) -> list[Row]:
    """One figure, with the columns of `TABLE` side by side."""
    rows: dict[tuple[str | float, ...], dict[str, str | float]] = {}
    for row in figures:
        if row["column"] not in left_out:
            beside = rows.setdefault(tuple(row[key] for key in keys), {key: row[key] for key in keys})
            beside[str(row["column"])] = row[what]
    return list(rows.values())


def _decimals(name: str, cents: NDArray[np.int64]) -> pa.Array:
    return Grid.of(TABLE.column(name)).array(cents)


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Values as floats, exactly."""
    kind = column.type
    plain = column.cast(pa.int64()) if pa.types.is_timestamp(kind) else column.cast(pa.float64())
    return np.asarray(plain.to_numpy(), np.float64)
