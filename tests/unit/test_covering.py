from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from privbench_core.engines.sql.engine import covering


@pytest.mark.parametrize("seed", range(20))
def test_each_marginal_is_within_a_joint_one_of_few_cells(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [f"x{number}" for number in range(10)]
    sizes = dict(zip(names, rng.integers(1, 60, len(names)).tolist(), strict=True))
    every = [columns for width in (1, 2, 3) for columns in combinations(names, width)]
    asked = [every[place] for place in rng.choice(len(every), 60, replace=False)]
    joint = covering(asked, sizes, 2000)
    assert joint.keys() == {frozenset(columns) for columns in asked}
    assert all(part <= set(whole) and len(set(whole)) == len(whole) for part, whole in joint.items())
    for whole in set(joint.values()):
        assert math.prod(sizes[name] for name in whole) <= 2000 or frozenset(whole) in joint
    assert len(set(joint.values())) < len(asked)
    assert joint == covering(asked, sizes, 2000)


def test_columns_that_nobody_asked_for_together_stay_apart_where_there_is_no_room() -> None:
    sizes = {"a": 4, "b": 5, "c": 6}
    assert set(covering([("a",), ("b",), ("c",)], sizes, 20).values()) == {("a", "b"), ("c",)}
