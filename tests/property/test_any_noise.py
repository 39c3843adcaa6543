"""No noise is too much: with any budget, on any database, every synthesizer makes rows of it, and no warning.

What is divided by a released number meets one that is nothing or less, or next to nothing: with few units and little
budget that is usual. Warnings of NumPy are errors here, as in all tests.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from privbench_core.errors import UnsupportedBudgetError
from privbench_core.privacy.budget import Budget
from privbench_core.synthesizers.steps.sampled import SampledTable
from tests.helpers.databases import (
    Database,
    career,
    club,
    desk,
    fleet,
    forum,
    harbour,
    poll,
    shop,
    site,
    till,
    town,
    ward,
)
from tests.helpers.depot import depot
from tests.helpers.networks import network
from tests.helpers.noise import SeededNoise
from tests.helpers.plans import Trace, computing_steps, plan_with, run_step

FEW, MANY = 40, 1500
EPSILONS = (0.01, 0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)
MADE: tuple[Callable[[int], Database], ...] = (
    career, club, desk, fleet, forum, harbour, poll, shop, site, till, town, ward, depot
)  # fmt: skip
OPTIONS = (
    {}, {"beta": 2}, {"alpha": 0.05, "beta": 12}, {"usefulness": 4.0}, {"usefulness": 0.1}, {"latents": 20},
    {"latents": 2, "usefulness": 0.01, "iterations": 3}, {"tables": "independent"}, {"tables": "privspn"},
)  # fmt: skip
FAILED = (79, 127, 203)
"""These did once."""
_NETWORKS = 0.25  # of the databases


def _check(number: int) -> None:
    rng = np.random.default_rng(number)
    made = network(rng) if rng.random() < _NETWORKS else MADE[rng.integers(len(MADE))](number % 7)
    epsilon, options = float(rng.choice(EPSILONS)), OPTIONS[rng.integers(len(OPTIONS))]
    try:
        plan = plan_with(made.schema, Budget(epsilon, 0.0 if rng.random() < 1 / 3 else 1e-6), options)
    except UnsupportedBudgetError:  # Gaussian noise, or lists to learn, without δ
        return
    trace = Trace()
    for step in computing_steps(plan):
        run_step(step, made, SeededNoise(number), trace)
    drawn = {key[1]: SampledTable(left).whole_rows() for key, left in trace.artifacts.items() if key[0] == "sample"}
    assert drawn.keys() == {table.name for table in made.schema.tables}


@pytest.mark.parametrize("number", [*range(FEW), *FAILED])
def test_rows_are_drawn_whatever_the_noise(number: int) -> None:
    _check(number)


@pytest.mark.slow
def test_rows_are_drawn_whatever_the_noise_of_many_runs() -> None:
    for number in range(FEW, MANY):
        _check(number)
