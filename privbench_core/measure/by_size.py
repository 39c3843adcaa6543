"""How a table's columns follow the number of rows of their unit: one-way marginals, class of sizes by class of sizes.

Units with many rows have other habits than units with few, and most rows. A unit is in one class of sizes, so that a
marginal over (class, column) counts the rows of units with up to T rows at a noise of T, for each class its own, and
all of them for the price of one. Classes that are too small to tell lean on their neighbours (`class_shapes`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.estimate.random_walk import class_shapes
from privbench_core.measure.row_count import distance_by_noise
from privbench_core.models.row_count import UNIT_SIZE, RowCount, class_coder, counts_up_to
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import Feature, Own, UnitRows
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec

Array = NDArray[np.float64]
_DOUBT = 1.0  # of what larger units move distributions: what is not known of it
_OTHERWISE = 0.05  # how far rows that are not counted move distributions beyond what shapes tell


def measure_by_size(
    session: PrivateSession, table: str, discretizers: Mapping[str, Discretizer], size: RowCount, price: Price
) -> dict[str, Array]:
    """Distributions of a table's columns in each class of sizes, shapes (classes, codes).

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1 and 4.

    Args:
        session: Open for the step.
        table: The table.
        discretizers: Of its columns.
        size: Of the table: its classes, and how many rows are in each.
        price: Of everything here.
    """
    several = {name: discretizer for name, discretizer in discretizers.items() if discretizer.size > 1}
    of_unit = class_coder(FanoutCodec(size.bound), size.classes)
    features: dict[str, tuple[Feature, Discretizer]] = {
        name: (Own(name), discretizer) for name, discretizer in several.items()
    }
    view = session.view(ViewSpec(table, {UNIT_SIZE: (UnitRows(), of_unit), **features}, size.classes), "by size")
    measured = view.measure("one-way by size", [Marginal((UNIT_SIZE, name)) for name in several], price)
    in_rows = np.array(size.classes) / size.classes[-1]  # of a count: those of the last class are of rows
    return {
        name: class_shapes(noisy * in_rows[:, None], measured.sigma * in_rows, size.rows_of)
        for name, noisy in zip(several, measured.values, strict=True)
    }


def best_counted(curator: Curator, shapes: Mapping[str, Array], size: RowCount, price: Price) -> int:
    """T: up to how many rows of a unit to count in full, for the least expected error of distributions over rows.

    It is for all that is asked of the table later: each column by itself, and with another one.

    Args:
        curator: Of a view that counts every unit once.
        shapes: Distributions of columns by class of sizes: how far counting T rows of larger units moves them.
        size: Of the table.
        price: Of all columns' marginals.
    """
    sigma = curator.sigma([Marginal(())], price.share(1 / max(1, len(shapes))))
    codes = np.array([shape.shape[1] for shape in shapes.values()], dtype=float)

    def error(most: int) -> float:
        rows = max(1.0, float(size.counted(most).sum()))
        noise = [distance_by_noise(cells, most * sigma, rows).sum() for cells in (codes, codes * codes.mean())]
        return sum(doubts(shapes, size, most).values()) + float(np.mean(noise))

    return min(counts_up_to(size.classes[-1]), key=error)


def doubts(shapes: Mapping[str, Array], size: RowCount, most: int) -> dict[str, float]:
    """How far, in total variation distance, columns that were counted with T may be from all rows after that."""
    missing = 1 - float(size.counted(most).sum()) / max(float(size.rows_of.sum()), 1.0)
    moved = {name: float(np.abs(size.left_out(shape, most)).sum()) / 2 for name, shape in shapes.items()}
    return {name: _DOUBT * distance + _OTHERWISE * missing for name, distance in moved.items()}
