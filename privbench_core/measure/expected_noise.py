"""Say in rows what a price means, from declared and released numbers alone, before anything is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privbench_core.measure.learned import expected_codes, learning_shares
from privbench_core.measure.row_count import noise_of_rows
from privbench_core.privacy.budget import Price
from privbench_core.privacy.noise import Sensitivity, noise_std
from privbench_core.privacy.relations import stability
from privbench_core.schema.tables import Schema

_DEVIATIONS = 2  # standard deviations that "±" stands for: 19 of 20 draws are within


@dataclass(frozen=True)
class ExpectedNoise:
    """What the noise does to a table, in rows.

    Attributes:
        rows: ± of the number of rows, where each unit counts as one row.
        cell: ± of one count of a column's histogram, likewise.
        most: Declared: the rows that a unit may have, by which both may be multiplied: how many count in full is chosen
            from released numbers, so that noise and what is left out balance.
    """

    rows: float
    cell: float
    most: int


def expected_noise(schema: Schema, table: str, price: Price) -> ExpectedNoise:
    """Return the noise that a profile of a private table costs at ``price``, about: joints and a second look differ.

    Args:
        schema: The database; its declared domains, keys and bounds count, no row.
        table: A private table.
        price: Of all that is measured of it.
    """
    columns = schema.table(table).attributes
    learning = sum(learning_shares(schema.table(table)).values())
    moved, each = stability(schema, table), max(1, len(columns))
    all_columns = Sensitivity(each * moved, math.sqrt(each) * moved)
    cell = noise_std(all_columns, price.share(1 - learning) if learning else price)
    most, codes = schema.max_rows_per_unit(table), expected_codes(schema.table(table))
    # Without a measured number of rows it is that of the columns' totals: a column of k codes has k times the variance.
    of_totals = cell / math.sqrt(sum(1 / size for size in codes)) if codes else cell
    rows = noise_of_rows(schema, table, price) if most > 1 else of_totals
    return ExpectedNoise(_DEVIATIONS * rows, _DEVIATIONS * cell, most)
