"""Searches in lists find the places that bisection finds, whatever texts hold."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import pytest
from sqlglot import exp

from privbench_core.engines.sql.search import TEXTS, ListSearch, _steps


@pytest.mark.parametrize("size", [*range(1, 70), 255, 256, 257, 1000])
def test_steps_lead_to_every_place_and_no_further(size: int) -> None:
    bounds = list(range(size))
    for value in range(-1, size):
        at = 0
        for step in _steps(size):
            at += step if not value < bounds[at + step - 1] else 0
        assert at == bisect_right(bounds, value)
    assert list(accumulate(_steps(size)))[-1] == size


def test_what_separates_texts_is_in_none_of_them() -> None:
    values = sorted(chr(0xE000 + place) for place in range(100))
    search = ListSearch().interval(exp.column("x"), values, list(range(101)), TEXTS)
    (split,) = (node for node in search.walk() if isinstance(node, exp.Anonymous) and node.name == "split")
    joined, separator = (literal.this for literal in split.expressions)
    assert joined.split(separator) == values
