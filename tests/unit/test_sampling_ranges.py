"""Tables drawn in ranges: the same bytes for any number of processors, and groups stay whole."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from privbench_core import guards
from privbench_core.groups.group_model import OWNER
from privbench_core.marginals.sampler import Rows
from privbench_core.sampling import ranges
from privbench_core.sampling.ranges import in_ranges, row_ranges
from tests.helpers.planted import draw_exactly, planted_pair


@pytest.mark.parametrize("rows", [0, 1, 149, 150, 1000, 1049, 1050])
def test_ranges_cover_every_row_once_and_none_is_small(rows: int):
    found = row_ranges(Rows(rows), 100)
    assert [place for where in found for place in range(rows)[where]] == list(range(rows))
    assert len(found) == 1 or min(where.stop - where.start for where in found) >= 50


def test_the_children_of_an_owner_stay_in_one_range():
    owners = np.repeat(np.arange(40), np.random.default_rng(0).integers(0, 60, 40))
    found = row_ranges(Rows(len(owners), {OWNER: owners}), 50)
    inside = [set(owners[where].tolist()) for where in found]
    assert len(found) > 5
    assert sum(map(len, inside)) == len(set(owners.tolist()))


def test_ranges_are_drawn_side_by_side_and_come_in_order(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranges, "processors", lambda: 2)
    both = threading.Barrier(2, timeout=300)

    def draw(where: slice, rng: np.random.Generator) -> tuple[int, int]:
        both.wait()  # fails if the ranges are drawn one after the other
        return where.start, int(rng.integers(1 << 62))

    found = in_ranges(draw, row_ranges(Rows(4), 1), np.random.default_rng(3))
    assert [start for start, _ in found] == [0, 1, 2, 3]
    assert len({number for _, number in found}) == 4


@pytest.mark.parametrize("options", [{}, {"usefulness": 4.0}], ids=["privbench", "privpetal"])
def test_any_number_of_processors_draws_the_same_rows(options: dict[str, float], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guards, "RANGE_ROWS", 300)
    schema, tables = planted_pair(1500)
    made = []
    for processors in (1, 3):
        monkeypatch.setattr(ranges, "processors", lambda number=processors: number)
        samples = draw_exactly(schema, tables, **options)
        made.append({name: sample.to_artifact().to_bytes() for name, sample in samples.items()})
    assert made[0] == made[1]
