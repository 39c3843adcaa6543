"""Estimate the joint of three columns from noisy counts of its cells, around what the joints of their pairs explain."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.fitting import fit_margins
from privbench_core.estimate.joints import NoisyTable, Pair
from privbench_core.estimate.mixture import Estimate, least_risk
from privbench_core.estimate.simplex import onto_simplex
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]
Triple = tuple[str, str, str]


def explained(triple: Triple, joints: Mapping[Pair, Array], clean: Mapping[str, Array]) -> Array:
    """Return counts of three columns that are as even as the counts of their pairs allow.

    Args:
        triple: The columns.
        joints: Counts of pairs, in either order; those that are missing are of independent columns.
        clean: Clean counts of the columns, with one total.
    """
    total = max(float(clean[triple[0]].sum()), 1.0)
    product = np.einsum("i,j,k->ijk", *(clean[name] for name in triple)) / total**2
    return fit_margins(product, _margins(triple, joints, clean))


def estimated_triples(
    tables: Mapping[Triple, NoisyTable], joints: Mapping[Pair, Array], clean: Mapping[str, Array]
) -> dict[Triple, Array]:
    """Return counts of the measured triples, with the margins of their pairs and positive where these are.

    Args:
        tables: Measured.
        joints: As for `explained`.
        clean: As for `explained`.
    """
    found = {}
    for triple, table in tables.items():
        base = explained(triple, joints, clean)
        projected = onto_simplex(table.counts, float(base.sum()))
        estimates = [Estimate(base, 0.0), Estimate(projected, float((projected > 0).sum()))]
        mixed = np.maximum(least_risk(estimates, table.counts, table.sigma), TUNING.floor * base)
        found[triple] = fit_margins(mixed, _margins(triple, joints, clean))
    return found


def _margins(
    triple: Triple, joints: Mapping[Pair, Array], clean: Mapping[str, Array]
) -> list[tuple[tuple[int, ...], Array]]:
    margins: list[tuple[tuple[int, ...], Array]] = []
    for i, j in combinations(range(3), 2):
        a, b = triple[i], triple[j]
        if (a, b) in joints:
            margins.append(((i, j), joints[a, b]))
        elif (b, a) in joints:
            margins.append(((i, j), joints[b, a].T))
        else:
            margins.append(((i, j), np.outer(clean[a], clean[b]) / max(float(clean[a].sum()), 1.0)))
    return margins
