"""The cases of every run: each value once. All combinations are slow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def covering(*choices: Sequence[Any], always: Any = None) -> list[Any]:
    """Combine choices to parameters of a test, slow but for a few.

    Args:
        choices: The values of each parameter; the first ones, the second ones and so on go together in every run.
        always: A value of the first parameter that is combined with all others in every run.
    """
    together = {tuple(number % len(values) for values in choices) for number in range(max(map(len, choices)))}
    return [
        pytest.param(*values, marks=[] if places in together or values[0] == always else [pytest.mark.slow])
        for places, values in zip(product(*map(range, map(len, choices))), product(*choices), strict=True)
    ]
