"""Numbers of children follow their parents' columns, row for row, although few parents have most of the children."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.models.fanout import Fanout
from privbench_core.models.rows import Rows
from privbench_core.sampling.fitted_numbers import fitted_numbers
from tests.helpers.heavy_tails import zipf_sizes

KINDS = 5


def planted(parents: int = 3000, seed: int = 0) -> tuple[np.ndarray, np.ndarray, Fanout]:
    """Numbers that follow the kind of parents in the tail, the kinds, and the link that says so."""
    rng = np.random.default_rng(seed)
    numbers = zipf_sizes(rng, parents, most=60, power=1.9, none=0.2)
    kinds = np.minimum((np.log2(np.maximum(numbers, 1)) * rng.random(parents) * 1.2).astype(np.int64), KINDS - 1)
    sizes = Discretizer(FanoutCodec(60))
    joint = np.zeros((KINDS, sizes.size))
    np.add.at(joint, (kinds, sizes.encode_numbers(numbers)), 1.0)
    return numbers, kinds, Fanout(sizes, joint.sum(axis=0) / parents, {"kind": joint / parents}, {}, numbers.sum())


def apart(numbers: np.ndarray, kinds: np.ndarray, fanout: Fanout) -> float:
    """Distance of the kinds of the parents of the children to those that follow from the link and the numbers."""
    of_code = np.bincount(fanout.sizes.encode_numbers(numbers), numbers, fanout.sizes.size)
    joint = fanout.fanout_tables["kind"]
    expected = joint / np.maximum(joint.sum(axis=0), 1e-12) @ of_code
    return float(np.abs(np.bincount(kinds, numbers, KINDS) - expected).sum() / 2 / numbers.sum())


def test_children_have_parents_of_the_released_kinds():
    before, after = [], []
    for seed in range(10):
        numbers, kinds, fanout = planted(seed=seed)
        rng = np.random.default_rng(1)
        drawn = np.zeros_like(numbers)  # as often as in the source within each kind, each by its own chance
        for kind in range(KINDS):
            drawn[kinds == kind] = rng.choice(numbers[kinds == kind], (kinds == kind).sum())
        fitted = fitted_numbers(drawn, Rows(len(kinds), {"kind": kinds}, {"kind": KINDS}), fanout, rng)
        assert sorted(fitted) == sorted(drawn)
        before.append(apart(drawn, kinds, fanout))
        after.append(apart(fitted, kinds, fanout))
    assert sum(after) < 0.75 * sum(before)


@pytest.mark.parametrize("parents", [20, 3000])
def test_numbers_stay_where_no_column_tells_of_them(parents: int):
    numbers, kinds, fanout = planted(parents)
    rows = Rows(parents, {"#type 1 of key": kinds}, {"#type 1 of key": KINDS})
    latent = replace(fanout, fanout_tables={"#type 1 of key": fanout.fanout_tables["kind"]})
    for link in (latent, replace(fanout, fanout_tables={})):
        assert (fitted_numbers(numbers, rows, link, np.random.default_rng(0)) == numbers).all()


def test_parents_without_children():
    _, kinds, fanout = planted()
    rows = Rows(len(kinds), {"kind": kinds}, {"kind": KINDS})
    assert not fitted_numbers(np.zeros(len(kinds), dtype=np.int64), rows, fanout, np.random.default_rng(0)).any()


def test_those_with_most_children_stay_those_that_they_are():
    """No parent has all that the source's most active parents have: none of them is moved to where most parents are."""
    rng = np.random.default_rng(0)
    parents, bound = 6000, 2000
    names = [f"column {number}" for number in range(4)]
    numbers = zipf_sizes(rng, parents, most=60, power=1.9, none=0.2)
    numbers[:3] = 1700, 1600, 1200
    sizes = Discretizer(FanoutCodec(bound))
    codes, columns, tables = sizes.encode_numbers(numbers), {}, {}
    for name in names:
        held = np.where(rng.random(parents) < 0.9, 0, rng.integers(1, 40, parents))
        held[:3] = [37, 38, 39]
        tables[name] = np.zeros((40, sizes.size))
        np.add.at(tables[name], (held, codes), 1 / parents)
        tables[name] = 0.98 * tables[name] + 0.02 * np.outer(tables[name].sum(axis=1), tables[name].sum(axis=0))
        columns[name] = held.copy()
        columns[name][:3] = rng.integers(1, 40, 3) if name != names[0] else held[:3]  # as drawn: these disagree
    fanout = Fanout(sizes, np.bincount(codes, minlength=sizes.size) / parents, tables, {}, numbers.sum())
    rows = Rows(parents, columns, dict.fromkeys(names, 40))
    found = fitted_numbers(numbers, rows, fanout, np.random.default_rng(1))
    assert set(np.flatnonzero(found > 1000)) == {0, 1, 2}
