"""Exchange numbers of children between parents until they follow the parents' columns as released, row for row.

Parents get their numbers of children one by one, each by its own chance. A few parents have most of the children, so
which of them these are decides what parents most rows have: by chance, up to a tenth of the rows would have those of
another kind. Here pairs of parents exchange their numbers if that brings joints of columns and numbers closer to the
released ones: first as parents are counted, by number and by magnitude, as there are fewer parents of each large number
than kinds; then as children are, as numbers of one magnitude differ. Post-processing: uses released tables and
synthetic rows only.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.fitting import RAKING_ROUNDS, fit_margins
from privbench_core.models.calibration import MIN_ROWS
from privbench_core.models.fanout import Fanout
from privbench_core.models.latent import is_latent
from privbench_core.models.record_swapping import RecordSwapping, TargetTable
from privbench_core.models.rows import Rows

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
_SWEEPS = 12  # at most, as of linked rows
_PARENT, _CODE, _MAGNITUDE = "#parent", "#code of number", "#magnitude of number"
_NOTHING = 1e-300


def fitted_numbers(numbers: Numbers, parents: Rows, fanout: Fanout, rng: np.random.Generator) -> Numbers:
    """Return the same numbers of children, each of one parent, so that they follow columns as `Fanout.fanout_tables`.

    Latent attributes are left out: they have told who has more children than whom, but each of their many values has a
    rounding of its own, which would outweigh the columns that are published.

    Args:
        numbers: Of children, shape (parents,).
        parents: With the columns of the tables.
        fanout: The released link.
        rng: Sampling only.
    """
    known = [name for name in fanout.fanout_tables if name in parents.codes and not is_latent(name)]
    if parents.n < MIN_ROWS or not known:
        return numbers
    code, magnitude = fanout.sizes.encode_numbers(numbers).astype(np.int64), _magnitudes(numbers)
    of_codes = np.bincount(code, minlength=fanout.sizes.size).astype(np.float64)
    joints: dict[str, Array] = {}
    for name in known:
        margin = np.bincount(parents.codes[name], minlength=parents.sizes[name]).astype(np.float64)
        joints[name] = fit_margins(fanout.fanout_tables[name], [((0,), margin), ((1,), of_codes)], RAKING_ROUNDS)
    # Of each code, the parents in each magnitude, and the children.
    both = np.zeros((2, len(of_codes), int(magnitude.max()) + 1))
    np.add.at(both[0], (code, magnitude), 1.0)
    np.add.at(both[1], (code, magnitude), numbers)
    of_parent, of_child = both / np.maximum(of_codes[:, None], _NOTHING)
    counted = [TargetTable((name, _CODE), joint) for name, joint in joints.items()]
    counted += [TargetTable((name, _MAGNITUDE), joint @ of_parent) for name, joint in joints.items()]
    moved = {_PARENT: np.arange(parents.n), _CODE: code, _MAGNITUDE: magnitude}
    swapping = RecordSwapping({**{name: parents.codes[name] for name in joints}, **moved}, counted, None)
    swapping.fit_together(tuple(moved), rng, _SWEEPS)
    in_children = {name: joint @ of_child for name, joint in joints.items()}
    return _by_children(numbers[moved[_PARENT]], parents, in_children, rng)


def _by_children(numbers: Numbers, parents: Rows, wanted: Mapping[str, Array], rng: np.random.Generator) -> Numbers:
    """Exchange numbers so that parents of each code have as many children in each magnitude; none stays none.

    ``wanted`` are children by the code of a column of their parent, and the magnitude of their number.
    """
    owning = np.flatnonzero(numbers)
    if not len(owning):
        return numbers
    held = numbers[owning]
    magnitudes = _magnitudes(held)
    of_row = np.bincount(magnitudes, held) / np.maximum(np.bincount(magnitudes), 1)
    targets = [TargetTable((name, _MAGNITUDE), joint, of_row=np.maximum(of_row, 1.0)) for name, joint in wanted.items()]
    moved = {_PARENT: np.arange(len(owning)), **{name: parents.codes[name][owning] for name in wanted}}
    swapping = RecordSwapping({_MAGNITUDE: magnitudes, **moved}, targets, held.astype(np.float64))
    swapping.fit_together(tuple(moved), rng, _SWEEPS)
    result = numbers.copy()
    result[owning[moved[_PARENT]]] = held  # columns move here, and numbers stay
    return result


def _magnitudes(numbers: Numbers) -> Numbers:
    """0 of none, 1 of one, 2 of 2 to 3, 3 of 4 to 7, and so on."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)
