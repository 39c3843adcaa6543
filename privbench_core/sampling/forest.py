"""Self-references as forests: references of a table to itself (employee.manager) must not form cycles.

Self-references usually represent hierarchies, and a recursive query over a cycle never ends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privbench_core.models.parent_choice import ParentChoice

Places = NDArray[np.int64]


def without_cycles(places: Places, choice: ParentChoice, rng: np.random.Generator) -> Places:
    """Return references of a table to itself with every cycle opened, shape (n,).

    One row of each cycle refers to a random row that does not depend on it instead, or to none if there is no such row.
    References drawn at random have about ln(n)/2 cycles, so few rows change.

    Args:
        places: Row that each row refers to, -1 for none.
        choice: What each row may refer to.
        rng: Sampling only.
    """
    result = places.copy()
    cuts = _one_of_each_cycle(places)
    result[cuts] = -1
    roots = _roots(result)
    room = choice.beside(result).room
    for row in rng.permutation(cuts).tolist():
        fits = (roots != row) & (choice.of_parent == choice.of_row[row])
        fits = fits if room is None else fits & (room > 0)
        candidates = np.zeros(0) if choice.distinct else np.flatnonzero(fits)
        if len(candidates):
            result[row] = rng.choice(candidates)
            if room is not None:
                room[result[row]] -= 1
            roots[roots == row] = roots[result[row]]
    return result


def _one_of_each_cycle(places: Places) -> Places:
    """Return the smallest row number of every cycle."""
    n = len(places)
    steps = np.append(places, n)  # row n represents "none" and refers to itself
    steps[steps < 0] = n
    least = np.arange(n + 1)
    for _ in range(max(1, n.bit_length())):  # after k rounds each step is 2^k references long
        least = np.minimum(least, least[steps])
        steps = steps[steps]
    on_cycle = np.zeros(n + 1, dtype=bool)
    on_cycle[steps] = True
    on_cycle[n] = False
    rows = np.flatnonzero(on_cycle)
    return np.asarray(rows[least[rows] == rows], dtype=np.int64)


def _roots(places: Places) -> Places:
    """Return the root of each row, in references without cycles."""
    roots = np.where(places < 0, np.arange(len(places)), places)
    for _ in range(max(1, len(places).bit_length())):
        roots = roots[roots]
    return roots
