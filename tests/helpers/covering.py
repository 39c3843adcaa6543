"""The cases of every run: each value once. All other combinations are slow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest


def covering(*choices: Sequence[Any]) -> list[Any]:
    """Combine choices to parameters of a test: the first of each, the second of each and so on are in every run."""
    together = {tuple(number % len(values) for values in choices) for number in range(max(map(len, choices)))}
    return [
        pytest.param(*values, marks=[] if places in together else [pytest.mark.slow])
        for places, values in zip(product(*map(range, map(len, choices))), product(*choices), strict=True)
    ]
