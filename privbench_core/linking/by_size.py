"""How a table's columns follow the number of rows of their unit: one-way marginals, class of sizes by class of sizes.

Units with many rows have other habits than units with few, and most rows. A unit is in one class of sizes, so a marginal
over (class, column) counts the rows of units with up to T rows at a noise of T, for each class its own, and all of them
for the price of one. Shapes of classes are shrunk towards their neighbours' where they are too small to tell.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from privbench_core.domain.binning import Binning
from privbench_core.domain.coder import Coder
from privbench_core.domain.group_sizes import GroupSizeCodec
from privbench_core.domain.simplex import onto_simplex
from privbench_core.linking.unit_rows import RowCount, class_coder
from privbench_core.models.one_way import OneWay
from privbench_core.models.joints import NoisyTable, estimated_joint
from privbench_core.privacy.budget import Price
from privbench_core.privacy.door import Door
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.views import Feature, Own, UnitRows, ViewSpec

Array = NDArray[np.float64]
UNIT_SIZE = "#rows of unit"


def measure_by_size(
    door: Door, table: str, coders: Mapping[str, Coder], one_way: OneWay, size: RowCount, price: Price
) -> dict[str, Array]:
    """Joint probabilities of (class of sizes, column), in the measure of ``one_way``; shapes (classes, codes).

    Args:
        door: Open for the step.
        table: The table.
        coders: Of its columns.
        one_way: Released counts of their codes.
        size: Of the table: its classes, and how many rows are in each.
        price: Of everything here.
    """
    several = {name: coder for name, coder in coders.items() if coder.size > 1}
    if not several or len(size.classes) == 1:
        return {}
    features: dict[str, tuple[Feature, Coder]] = {name: (Own(name), coder) for name, coder in several.items()}
    view = door.view(
        ViewSpec(
            table,
            {UNIT_SIZE: (UnitRows(), class_coder(GroupSizeCodec(size.bound), size.classes)), **features},
            size.classes,
        ),
        "by size",
    )
    measured = view.measure("one-way by size", [Marginal((UNIT_SIZE, name)) for name in several], price)
    sigma = measured.sigma / size.classes[-1]
    margin = np.maximum(size.rows_of / np.array(size.classes), 0.1 * sigma)
    joints = {}
    for name, noisy in zip(several, measured.values, strict=True):
        noisy = noisy / size.classes[-1]
        column = onto_simplex(noisy.sum(axis=0), margin.sum())
        column = np.maximum(column, 0.002 * margin.sum() / len(column))
        found = estimated_joint(NoisyTable(noisy, sigma), margin, column * margin.sum() / column.sum())
        joint = found * (size.counted_of / found.sum(axis=1))[:, None]
        joints[name] = joint / joint.sum()
    return joints
