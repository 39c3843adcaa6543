"""Say in rows what a price means, from declared and released numbers alone, before anything is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from privbench_core.estimators.segmentation import SIGNIFICANT
from privbench_core.guards import HIDDEN_PARTS, SHOWN_DEVIATIONS, TINY
from privbench_core.privacy.budget import Price
from privbench_core.privacy.noise import Sensitivity, noise_std
from privbench_core.privacy.relations import bounded_moves, reference_moves, stability
from privbench_core.profiles.measure_domains import expected_codes, learning_shares
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema
from privbench_core.units.measure_row_count import noise_of_rows
from privbench_core.units.row_count import RowCount


class Expectation(StrEnum):
    """What a table will show, from the worst to the best."""

    NOISE = "all noise"
    ROWS = "number of rows only"
    COLUMNS = "single columns"
    JOINTS = "pairs and joins"


@dataclass(frozen=True)
class ExpectedNoise:
    """What the noise does to a table, in rows.

    Attributes:
        rows: ± of the number of rows, where each unit counts as one row.
        cell: ± of one count of a column's histogram, likewise.
        most: Declared: the rows that a unit may have, by which both may be multiplied; T is chosen from released
            numbers.
    """

    rows: float
    cell: float
    most: int

    @property
    def needed(self) -> dict[Expectation, float]:
        """Rows of how many units it takes, where all have equally many, for each `Expectation` but noise.

        As in `Profile.hidden`, quarters have to stand out: a quarter of the number of rows, of the rows of a column,
        and a quarter of a quarter of those of two columns, which have half of the price.
        """
        quarters = SIGNIFICANT / SHOWN_DEVIATIONS * HIDDEN_PARTS
        rows = min(self.rows, math.sqrt(HIDDEN_PARTS) * self.cell)  # the quarters of a column add up to the rows
        return {
            Expectation.ROWS: quarters * rows,
            Expectation.COLUMNS: quarters * max(rows, self.cell),
            Expectation.JOINTS: quarters * max(rows, math.sqrt(2) * HIDDEN_PARTS * self.cell),
        }

    def expected(self, units: float) -> Expectation:
        """Return what a table shows with the rows of so many units, see `effective_units`."""
        shown = [expectation for expectation, needed in self.needed.items() if needed <= units]
        return shown[-1] if shown else Expectation.NOISE


def effective_units(rows: float, units: float) -> float:
    """Return of how many units with equally many rows the counts would be as noisy: n²/Σs² (Kish 1965).

    Numbers of rows s of a unit are taken to be geometric with mean rows/units: many units have none, a few have many.

    >>> round(effective_units(1e6, 1000)), round(effective_units(10, 1e6))
    (500, 10)
    """
    return rows * units / max(2 * rows + units, TINY)


def expected_noise(schema: Schema, table: str, price: Price) -> ExpectedNoise:
    """Return about the noise of a profile of a private table if all that is measured of it costs ``price``.

    Declared domains, keys and bounds of the schema count, no row. Joints and remeasurements differ.
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
    return ExpectedNoise(SHOWN_DEVIATIONS * rows, SHOWN_DEVIATIONS * cell, most)


@dataclass(frozen=True)
class LinkNoise:
    """What the noise does to a key off the ownership path, at best: if all of its price went into one count of links.

    Attributes:
        key: The key.
        links: ± of a count of links, in rows.
        rows: Released number of rows with the key; None before there is one.
    """

    key: ForeignKey
    links: float
    rows: float | None = None

    @property
    def all_noise(self) -> bool:
        """Whether noise hides even a quarter of the links, so that released numbers say nothing of which there are."""
        return self.rows is not None and self.rows <= self.hidden

    @property
    def hidden(self) -> float:
        """How many rows noise hides: as many as it takes to hide a quarter of their links."""
        return SIGNIFICANT / SHOWN_DEVIATIONS * math.sqrt(HIDDEN_PARTS) * self.links

    @property
    def in_words(self) -> str:
        """What is known of the key, without its name."""
        found = "" if self.rows is None else f"about {max(0, round(self.rows)):,} rows, "
        return f"links to {self.key.parent} are all noise at this ε ({found}± {self.links:,.0f})"

    def __str__(self) -> str:
        """Return in words what is known."""
        return f"{self.key.name}: {self.in_words}"


def link_noise(
    schema: Schema, key: ForeignKey, price: Price, size: RowCount | None = None, *, bounded: bool = False
) -> LinkNoise:
    """Return the noise of links along a key, from declared and released numbers alone.

    Args:
        schema: The database; its keys and bounds count, no row.
        key: Not on the ownership path.
        price: Of all that is measured along it.
        size: Released, of the table that has the key: units of up to so many rows count in full as is best.
        bounded: Whether references to a unit are bounded, see `BoundedReferences`: by as many as a unit's own rows.
    """
    own, moves = stability(schema, key.child), reference_moves(schema, key)

    def noise(most: int) -> float:
        moved = own * most + moves
        sensitivity = Sensitivity(moved, moved)
        if bounded:
            lost, gained = bounded_moves(schema, key, most, own * most)
            sensitivity = Sensitivity(lost + gained, math.hypot(lost, gained))
        return SHOWN_DEVIATIONS * noise_std(sensitivity, price)

    if size is None or size.bound == 1:
        return LinkNoise(key, noise(1), None if size is None else size.rows)
    every = [max(1.0, size.rows / max(1.0, float(size.counted(most).sum()))) for most in size.classes]
    return LinkNoise(key, min(noise(most) * scale for most, scale in zip(size.classes, every, strict=True)), size.rows)
