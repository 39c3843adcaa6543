"""Values that are still free in a unique set."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.links.parent_choice import repeated
from privbench_core.sampling import attributes
from privbench_core.sampling.attributes import free_values
from privbench_core.sampling.keys import group_numbers

MANY = 1 << 22


@pytest.mark.parametrize("at_a_time", [MANY, 1], ids=["all scopes at once", "one by one"])
def test_every_repetition_goes_where_values_are_left(at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attributes, "MAX_CELLS", at_a_time)
    rng = np.random.default_rng(0)
    scope = np.sort(rng.integers(0, 300, 1500))
    drawn = np.where(rng.random(1500) < 0.9, 7, rng.integers(0, 20, 1500))
    values = pa.array(drawn.tolist())
    again = repeated(group_numbers([pa.array(scope), values], 1500))
    made = free_values(values, scope, again, rng)
    assert not repeated(group_numbers([pa.array(scope), made], 1500)).any()
    assert made.filter(pa.array(~again)).equals(values.filter(pa.array(~again)))
    assert set(made.to_pylist()) <= set(drawn.tolist())


def test_rows_stay_as_they_are_where_nothing_is_left() -> None:
    values = pa.array([1, 2, 1, 2, None, 1])
    scope = np.array([0, 0, 0, 0, 0, 1])
    again = np.array([False, False, True, True, False, False])
    assert free_values(values, scope, again, np.random.default_rng(2)).to_pylist() == values.to_pylist()
