from __future__ import annotations

import numpy as np

from privbench_core.marginals.record_swapping import TargetTable, swap
from privbench_core.marginals.spn import binds


def cells(codes, *names):
    return np.unique(np.stack([codes[name] for name in names]), axis=1, return_counts=True)


def drawn(n: int = 4000):
    """An industry determines its category; how both depend on an age is still to be fitted."""
    rng = np.random.default_rng(0)
    industry = rng.integers(0, 12, n)
    return {"industry": industry, "category": industry // 3, "age": rng.integers(0, 8, n), "sex": rng.integers(0, 2, n)}


def test_kept_pairs_keep_their_table_while_others_are_fitted():
    codes = drawn()
    before = {name: values.copy() for name, values in codes.items()}
    chances = np.exp(-np.abs(np.arange(12)[:, None] / 12 - np.arange(8)[None, :] / 8) * 4)
    wanted = {"industry": chances, "category": chances.reshape(4, 3, 8).sum(axis=1)[::-1]}  # they contradict each other
    targets = [TargetTable((name, "age"), table / table.sum() * 4000) for name, table in wanted.items()]
    targets.append(TargetTable(("industry", "category"), np.zeros((12, 4))))  # and this one asks for nothing
    swap(
        codes, targets, [(name,) for name in codes], np.random.default_rng(1), sweeps=6, kept=[("industry", "category")]
    )
    for found, as_drawn in zip(
        cells(codes, "industry", "category"), cells(before, "industry", "category"), strict=True
    ):
        assert np.array_equal(found, as_drawn)
    assert any((codes[name] != before[name]).any() for name in ("industry", "age"))


def test_kept_pairs_move_together_towards_other_tables():
    codes, sex = drawn(), np.zeros((4, 2))
    sex[:2, 0], sex[2:, 1] = 1000, 1000

    def off(now):
        return np.abs(np.bincount(now["category"] * 2 + now["sex"], minlength=8).reshape(4, 2) - sex).sum()

    moved = {name: values.copy() for name, values in codes.items()}
    swap(
        moved, [TargetTable(("category", "sex"), sex)], [("category",)], np.random.default_rng(1), sweeps=6,
        kept=[("industry", "category")],
    )  # fmt: skip
    assert off(moved) < 0.3 * off(codes)
    assert np.array_equal(moved["category"], moved["industry"] // 3)


def test_a_larger_table_with_some_of_the_kept_columns_keeps_them_from_moving_together():
    codes = drawn()
    table = TargetTable(("industry", "category", "sex"), np.ones((12, 4, 2)))
    swap(codes, [table], [("sex",)], np.random.default_rng(1), sweeps=2, kept=[("industry", "category")])
    assert np.array_equal(codes["category"], codes["industry"] // 3)


def test_columns_bind_each_other_where_one_halves_the_errors_of_the_other():
    assert binds(np.diag([1.0, 2.0, 3.0]))
    assert binds(np.repeat(np.eye(3), 4, axis=0))
    assert not binds(np.outer([0.97, 0.03], [0.98, 0.02]))  # the likeliest codes are nearly always right anyhow
