"""What the rows of a bundle show to hold between columns, for new rows to keep."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from privbench_core.columns.row_constraints import NOT_APPLICABLE, VIOLATED, verdicts
from privbench_core.continuation.arrivals import Ints, is_calendar
from privbench_core.guards import SAMPLE_ROWS
from privbench_core.sampling.keys import common_numbers
from privbench_core.schema.columns import ColumnType
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.row_constraints import DatePart, PartOfDate
from privbench_core.schema.tables import Schema, Table

_TELLING = 20  # rows from which a number is taken to be a part of a date
_AGREEMENT = 0.9  # of columns beyond chance (Cohen's kappa) from which one repeats the other


def parts_of_dates(table: Table, rows: pa.Table) -> list[PartOfDate]:
    """Return which columns of a table are parts of its dates (the year of an invoice), in every row of a sample."""
    numbers = [c.name for c in table.columns if c.type is ColumnType.INTEGER and c.name not in table.referring_columns]
    dates = [c.name for c in table.columns if is_calendar(c)]
    sample = rows.slice(max(0, rows.num_rows - SAMPLE_ROWS))
    values = {name: sample.column(name) for name in (*numbers, *dates)}
    found: dict[str, PartOfDate] = {}
    for number in numbers:
        for part in (PartOfDate(number, date, part) for date in dates for part in DatePart):
            judged = verdicts(table, part, values)
            if VIOLATED not in judged and (judged != NOT_APPLICABLE).sum() >= _TELLING:
                found.setdefault(number, part)
    return list(found.values())


def repeated_columns(schema: Schema, key: ForeignKey, read: Mapping[str, pa.Table], parents: Ints) -> dict[str, str]:
    """Return columns of rows that repeat a column of the row that a key refers to, with that column.

    The currency of an order is that of its customer, the amount of a payment the total of its order: in a sample of the
    rows of the bundle they agree far more often than two columns of such values would by chance.

    Args:
        schema: The database.
        key: The key.
        read: All rows by table.
        parents: The row that each row refers to, shape (rows,); -1 for none.
    """
    table, above = schema.table(key.child), schema.table(key.parent)
    keys = {name for group in (table.primary_key, *table.unique) for name in group} | table.referring_columns
    columns = [column for column in table.columns if column.name not in keys and not is_calendar(column)]
    others = [column for column in above.columns if column.name not in key.parent_columns]
    rows = np.arange(max(0, len(parents) - SAMPLE_ROWS), len(parents))
    rows = rows[parents[rows] >= 0]
    found: dict[str, str] = {}
    for column in columns if len(rows) else ():
        here = read[key.child].column(column.name).take(pa.array(rows))
        for other in (other for other in others if other.arrow_type == column.arrow_type):
            there = read[key.parent].column(other.name).take(pa.array(parents[rows]))
            numbers, beside = common_numbers([here], [there], (len(rows), len(rows)))
            both = (numbers >= 0) & (beside >= 0)
            size = int(max(numbers.max(), beside.max())) + 2
            shares = [np.bincount(each[both], minlength=size) / max(1, both.sum()) for each in (numbers, beside)]
            chance = float(shares[0] @ shares[1])
            if both.any() and (numbers == beside)[both].mean() - chance > _AGREEMENT * (1 - chance) > 0:
                found.setdefault(column.name, other.name)
    return found
