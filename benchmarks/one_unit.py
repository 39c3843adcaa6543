"""What one privacy unit makes up of the answers to a workload, and what noise that hides it leaves of each.

A guarantee for every unit hides that with the most rows. So a query of which one unit is a large share cannot be
answered well, whatever the synthesizer: even if nothing else were asked, and all of ε paid for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp, parse_one

from benchmarks.report import Row
from privbench_core.engines.memory_relations import Relations
from privbench_core.privacy.budget import Budget, Measure
from privbench_core.schema.tables import Schema
from privbench_core.workload import Workload

Array = NDArray[np.float64]
_DRAWS = 200  # of the noise, so that percentiles over queries hardly depend on chance
_UNIT = "#unit"


def largest_shares(schema: Schema, rows: Mapping[str, pa.Table], workload: Workload) -> tuple[Array, Array]:
    """Return the number of rows that each query counts, and the share of these that one unit has, in the same order.

    Where a query joins rows of several units, a row counts for the unit of its first private table alone, so the share
    is at least this. Queries that find no row, or look at public tables alone, are left out.
    """
    relations, owned = Relations(schema, rows, b""), {table.name for table in schema.private_tables}
    counted, shares = list[float](), list[float]()
    with duckdb.connect() as database:
        for name, held in rows.items():
            shown = held.append_column(_UNIT, pa.array(relations.unit_of(name))) if name in owned else held
            database.register(name, shown)
        for statement in workload.statements:
            query = parse_one(statement.sql, read=workload.dialect)
            private = [table.alias_or_name for table in query.find_all(exp.Table) if table.name in owned]
            if private:
                unit = exp.column(_UNIT, private[0], quoted=True)
                grouped = query.copy().select(exp.Count(this=exp.Star()).as_("rows"), append=False).group_by(unit)
                total, most = exp.func("SUM", exp.column("rows")), exp.func("MAX", exp.column("rows"))
                asked = exp.select(total, most).from_(grouped.subquery("units")).sql("duckdb")
                found = database.execute(asked).fetchone()
                if found and found[0]:
                    counted.append(float(found[0]))
                    shares.append(float(found[1]) / float(found[0]))
    return np.array(counted), np.array(shares)


def hidden(schema: Schema, rows: Mapping[str, pa.Table], workload: Workload, epsilon: float, delta: float) -> Row:
    """Return percentiles of the largest shares, and of Q-errors of exact answers with noise that covers these alone."""
    counted, shares = largest_shares(schema, rows, workload)
    price, rng = Budget(epsilon, delta).total(), np.random.default_rng(0)
    draws = (_DRAWS, len(counted))
    pure = price.measure is Measure.PURE
    noise = rng.laplace(0, 1 / price.amount, draws) if pure else rng.normal(0, (2 * price.amount) ** -0.5, draws)
    answers, true = np.maximum(counted * (1 + shares * noise), 1.0), np.maximum(counted, 1.0)
    errors = np.maximum(answers / true, true / answers)
    half, most = np.percentile(shares, (50, 95)).tolist()
    median, rare = np.mean([np.percentile(each, (50, 95)) for each in errors], axis=0).tolist()
    return {
        "queries": float(len(counted)),
        "share of one unit, median": half,
        "share of one unit, 95th": most,
        "Q-error, median": median,
        "Q-error, 95th": rare,
    }
