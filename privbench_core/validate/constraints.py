"""Check a synthetic table's CHECK constraints and functional dependencies."""

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
    """Return the result of each CHECK that sampling enforces, and of each functional dependency, of a private table.

    Public tables are published unchanged, and have no results.
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
        results.append(_result(name, (*rule.determinant, *rule.dependent), _dependency_violations(rule, rows)))
    return results


def _result(name: str, columns: tuple[str, ...], violations: int) -> ExpectationResult:
    return ExpectationResult(name, ",".join(columns), violations == 0, violations)


def _dependency_violations(rule: Dependency, rows: pa.Table) -> int:
    """Count rows whose dependent values differ from the first row with the same determinant; NULL counts as a value."""
    determinant = group_numbers([rows.column(name) for name in rule.determinant], rows.num_rows)
    codes = [pc.fill_null(rows.column(n).combine_chunks().dictionary_encode().indices, -1) for n in rule.dependent]
    dependent = group_numbers(codes, rows.num_rows)
    keyed = np.flatnonzero(determinant >= 0)
    _, first, group = np.unique(determinant[keyed], return_index=True, return_inverse=True)
    return int((dependent[keyed] != dependent[keyed][first][group.ravel()]).sum())
