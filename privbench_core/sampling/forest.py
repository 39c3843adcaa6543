"""Self-references as forests: a table that refers to itself (employee.manager) must not run in circles.

A recursive query over a circle never ends, and hierarchies are what self-references are used for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.models.parent_choice import ParentChoice

Places = NDArray[np.int64]


def without_cycles(places: Places, choice: ParentChoice, rng: np.random.Generator) -> Places:
    """References of a table to itself with every circle opened, shape (n,).

    One row of each circle refers to a random row outside of what depends on it instead, or to none where there is no
    such row. References drawn at random have about ln(n)/2 circles, so hardly any row is touched.

    Args:
        places: Row that each row refers to, -1 for none.
        choice: What each row may refer to.
        rng: Sampling only.
    """
    result = places.copy()
    cuts = _one_of_each_circle(places)
    result[cuts] = -1
    roots = _roots(result)
    for row in rng.permutation(cuts).tolist():
        fits = (roots != row) & (choice.of_parent == choice.of_row[row])
        candidates = np.zeros(0) if choice.distinct else np.flatnonzero(fits)
        if len(candidates):
            result[row] = rng.choice(candidates)
            roots[roots == row] = roots[result[row]]
    return result


def _one_of_each_circle(places: Places) -> Places:
    """The smallest row number of every circle."""
    n = len(places)
    steps = np.append(places, n)  # row n stands for "none", and stays there
    steps[steps < 0] = n
    least = np.arange(n + 1)
    for _ in range(max(1, n.bit_length())):  # after k rounds each step is 2^k references long
        least = np.minimum(least, least[steps])
        steps = steps[steps]
    on_circle = np.zeros(n + 1, dtype=bool)
    on_circle[steps] = True
    on_circle[n] = False
    rows = np.flatnonzero(on_circle)
    return np.asarray(rows[least[rows] == rows], dtype=np.int64)


def _roots(places: Places) -> Places:
    """The last row that each row leads to, in references without circles."""
    roots = np.where(places < 0, np.arange(len(places)), places)
    for _ in range(max(1, len(places).bit_length())):
        roots = roots[roots]
    return roots
