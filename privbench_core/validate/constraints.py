"""Whether a synthetic table keeps its CHECK constraints and functional dependencies, as expectation results."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.sampling.constraints import row_rules
from privbench_core.sampling.row_groups import group_numbers
from privbench_core.schema.constraints import Dependency
from privbench_core.schema.tables import Table
from privbench_core.validate.expectations import ExpectationResult


def check_constraints(table: Table, rows: pa.Table) -> list[ExpectationResult]:
    """Judge every check that sampling keeps, and every functional dependency, of a private table.

    Public tables are published as they are, so nothing is said about them.

    Args:
        table: What must hold.
        rows: The synthetic rows.
    """
    if table.public:
        return []
    columns = {name: rows.column(name) for name in rows.column_names}
    results = [
        _result(f"expect_check_to_hold: {rule.check.name}", rule.columns, int(rule.broken(columns).sum()))
        for rule in row_rules(table)
    ]
    for rule in table.dependencies:
        name = f"expect_functional_dependency: {', '.join(rule.determinant)} -> {', '.join(rule.dependent)}"
        results.append(_result(name, (*rule.determinant, *rule.dependent), _undetermined(rule, rows)))
    return results


def _result(name: str, columns: tuple[str, ...], against: int) -> ExpectationResult:
    return ExpectationResult(name, ",".join(columns), against == 0, against)


def _undetermined(rule: Dependency, rows: pa.Table) -> int:
    """Rows whose dependent values differ from those of the first row with the same determinant; NULL is a value."""
    given = group_numbers([rows.column(name) for name in rule.determinant], rows.num_rows)
    codes = [pc.fill_null(rows.column(n).combine_chunks().dictionary_encode().indices, -1) for n in rule.dependent]
    drawn = group_numbers(codes, rows.num_rows)
    keyed = np.flatnonzero(given >= 0)
    _, first, which = np.unique(given[keyed], return_index=True, return_inverse=True)
    return int((drawn[keyed] != drawn[keyed][first][which.ravel()]).sum())
