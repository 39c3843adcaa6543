"""Rows are exchanged between owners until siblings agree as often as was released, and stay what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from privbench_core.evaluation.joins import sibling_agreement
from privbench_core.groups.group_model import OWNER
from privbench_core.groups.siblings import WithinGroupCorrelation
from privbench_core.links.fanout import Agreement
from privbench_core.marginals.sampler import Rows

_ROWS = 6_000
_CODES = 4


@dataclass(frozen=True)
class Independent:
    """Draws columns by probabilities for each code of the column ``above``, which rows know."""

    given: Mapping[str, np.ndarray]

    def draw(self, rows: Rows, rng: np.random.Generator) -> None:
        """See `Model.draw`."""
        for name, table in self.given.items():
            steps = np.cumsum(table, axis=1)[rows.codes["above"]]
            rows.add(name, table.shape[1], (rng.random((rows.n, 1)) > steps).sum(axis=1))


def drawn(
    agreements: list[Agreement], given: Mapping[str, np.ndarray], sizes: np.ndarray, seed: int = 0
) -> tuple[Rows, Rows]:
    """The same rows, as a model draws them and as they are exchanged."""
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    above = rng.integers(3, size=len(sizes))[owners]
    pair = []
    for model in (Independent(given), WithinGroupCorrelation(Independent(given), agreements)):
        rows = Rows(len(owners))
        rows.add(OWNER, len(sizes), owners)
        rows.add("above", 3, above)
        model.draw(rows, np.random.default_rng(seed))
        pair.append(rows)
    return pair[0], pair[1]


def correlated(column: str, share: float, sigma: float = 0.0, codes: int = _CODES) -> Agreement:
    return Agreement(column, np.arange(codes), share, sigma)


EVEN = np.full((3, _CODES), 1 / _CODES)
FIVES = np.full(_ROWS // 5, 5)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_siblings_agree_as_often_as_they_should(share: float) -> None:
    before, after = drawn([correlated("x", share)], {"x": EVEN}, FIVES)
    assert sibling_agreement(before.codes[OWNER], before.codes["x"]) == pytest.approx(0.25, abs=0.02)
    assert sibling_agreement(after.codes[OWNER], after.codes["x"]) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2])
def test_siblings_differ_as_often_as_they_should(share: float) -> None:
    """Of three codes' worth of four: no two of three siblings need be the same."""
    before, after = drawn([correlated("x", share)], {"x": EVEN}, np.full(_ROWS // 3, 3))
    assert sibling_agreement(before.codes[OWNER], before.codes["x"]) > share + 0.02
    assert sibling_agreement(after.codes[OWNER], after.codes["x"]) == pytest.approx(share, abs=0.015)


def test_one_of_two_is_the_head() -> None:
    head = np.tile([0.5, 0.5], (3, 1))
    _, after = drawn([correlated("head", 0.0, codes=2)], {"head": head}, np.full(_ROWS // 2, 2))
    heads = np.bincount(after.codes[OWNER], after.codes["head"])
    assert (heads == 1).mean() > 0.97


def test_rows_stay_what_they_are_and_where_owners_are_alike() -> None:
    given = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4]])
    both = [correlated("x", 0.8), correlated("y", 0.45)]
    before, after = drawn(both, {"x": given, "y": given[:, ::-1]}, FIVES)
    found = [np.unique(rows.codes["x"] * _CODES + rows.codes["y"], return_counts=True) for rows in (before, after)]
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))
    for name in "xy":
        tables = [
            np.bincount(rows.codes["above"] * _CODES + rows.codes[name], minlength=12) / rows.n
            for rows in (before, after)
        ]
        assert np.abs(tables[0] - tables[1]).sum() / 2 < 0.03, name
    assert sibling_agreement(after.codes[OWNER], after.codes["x"]) == pytest.approx(0.8, abs=0.03)


def test_two_columns_agree_as_often_as_each_should() -> None:
    both = [correlated("x", 0.6), correlated("y", 0.4), correlated("z", 0.25)]
    _, after = drawn(both, dict.fromkeys("xyz", EVEN), FIVES)
    for each in both:
        assert sibling_agreement(after.codes[OWNER], after.codes[each.column]) == pytest.approx(each.share, abs=0.03)


def test_codes_of_one_group_count_as_the_same() -> None:
    halves = Agreement("x", np.array([0, 0, 1, 1]), 0.9, 0.0)
    _, after = drawn([halves], {"x": EVEN}, FIVES)
    owners = after.codes[OWNER]
    assert sibling_agreement(owners, halves.groups[after.codes["x"]]) == pytest.approx(0.9, abs=0.03)
    assert sibling_agreement(owners, after.codes["x"]) == pytest.approx(0.45, abs=0.04)


def test_what_noise_explains_exchanges_nothing() -> None:
    before, after = drawn([correlated("x", 0.4, sigma=0.2)], {"x": EVEN}, FIVES)
    assert np.array_equal(before.codes["x"], after.codes["x"])
    half = correlated("x", 0.45, sigma=0.1)
    assert half.wanted(0.25) == pytest.approx(0.25 + 0.2 * 0.75)
    assert half.wanted(0.45) == 0.45


def test_agreement_is_the_same_in_groups_of_all_sizes() -> None:
    sizes = np.repeat([2, 4, 12], [900, 450, 150])
    _, after = drawn([correlated("x", 0.55)], {"x": EVEN}, sizes)
    for size in (2, 4, 12):
        owners = np.where(sizes[after.codes[OWNER]] == size, after.codes[OWNER], -1)
        assert sibling_agreement(owners, after.codes["x"]) == pytest.approx(0.55, abs=0.06), size


def test_rows_alone_and_few_rows_are_left_as_they_are() -> None:
    for sizes in (np.ones(_ROWS, dtype=np.int64), np.full(10, 5)):
        before, after = drawn([correlated("x", 0.9)], {"x": EVEN}, sizes)
        assert np.array_equal(before.codes["x"], after.codes["x"])


def test_columns_that_a_model_does_not_draw_are_left_out() -> None:
    before, after = drawn([correlated("other", 0.9)], {"x": EVEN}, FIVES)
    assert np.array_equal(before.codes["x"], after.codes["x"])
