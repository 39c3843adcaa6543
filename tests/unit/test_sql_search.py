"""Searches in lists find the places that bisection finds, whatever texts hold."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import pytest
from sqlglot import exp

from privbench_core.engines.sql import NUMBERS, REALS, TEXTS, ListSearch, _steps


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 9, 31, 69, 255, 256, 257, 1000])
def test_steps_lead_to_every_place_and_no_further(size: int) -> None:
    bounds = list(range(size))
    for value in range(-1, size):
        at = 0
        for step in _steps(size):
            at += step if not value < bounds[at + step - 1] else 0
        assert at == bisect_right(bounds, value)
    assert list(accumulate(_steps(size)))[-1] == size


def test_a_list_is_one_text_however_many_bounds_it_has() -> None:
    for values, kind in (
        (list(range(5000)), NUMBERS),
        ([place / 7 for place in range(5000)], REALS),
        ([f"{place:05}" for place in range(5000)], TEXTS),
    ):
        searches = [
            ListSearch().interval(exp.column("x"), values[:size], list(range(size, -1, -1)), kind)
            for size in (100, 5000)
        ]
        kinds = [[type(node) for node in search.walk() if type(node) is not exp.Literal] for search in searches]
        assert kinds[0] == kinds[1]


def test_what_separates_texts_is_in_none_of_them() -> None:
    values = sorted(chr(0xE000 + place) for place in range(100))
    search = ListSearch().interval(exp.column("x"), values, list(range(101)), TEXTS)
    (split,) = (node for node in search.walk() if isinstance(node, exp.Anonymous) and node.name == "split")
    joined, separator = (literal.this for literal in split.expressions)
    assert joined.split(separator) == values


def test_numbers_beyond_64_bits_are_listed_as_decimals() -> None:
    for last, kept in ((2**63 - 1, "BIGINT"), (2**63, "DECIMAL(38, 0)")):
        search = ListSearch().interval(exp.column("x"), [*range(99), last], list(range(101)), NUMBERS)
        assert f"AS ARRAY<{kept}>" in search.sql("spark")
