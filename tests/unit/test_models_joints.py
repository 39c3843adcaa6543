from __future__ import annotations

import numpy as np
import pytest

from privbench_core.estimators.denoising import onto_simplex
from privbench_core.estimators.joints import NoisyTable, determined, estimated_joint, low_rank


def smooth_table(rows: int = 30, columns: int = 20, total: float = 40_000.0):
    """Two columns that depend on each other through one hidden number."""
    x, y = np.linspace(-1, 1, rows)[:, None], np.linspace(-1, 1, columns)[None, :]
    table = np.exp(-2 * (x - y) ** 2)
    return table / table.sum() * total


def error(estimate, truth) -> float:
    return float(np.abs(estimate - truth).sum())


def test_a_smooth_dependence_loses_most_of_its_noise():
    truth = smooth_table()
    noisy = truth + np.random.default_rng(0).normal(0, 30, truth.shape)
    ours = estimated_joint(NoisyTable(noisy, 30.0), truth.sum(axis=1), truth.sum(axis=0))
    assert error(ours, truth) < 0.5 * error(onto_simplex(noisy, truth.sum()), truth)


def test_independent_columns_get_their_product():
    first, second = np.linspace(100, 2000, 15), np.linspace(3000, 100, 10)
    second *= first.sum() / second.sum()
    truth = np.outer(first, second) / first.sum()
    noisy = truth + np.random.default_rng(0).normal(0, 50, truth.shape)
    assert error(estimated_joint(NoisyTable(noisy, 50.0), first, second), truth) < 0.02 * truth.sum()


@pytest.mark.parametrize("shape", [(2, 2), (1, 5), (2, 40), (40, 3)])
def test_joints_have_their_marginals_and_no_zeros(shape):
    rng = np.random.default_rng(1)
    first, second = rng.dirichlet(np.ones(shape[0])) * 5000, rng.dirichlet(np.ones(shape[1])) * 5000
    ours = estimated_joint(NoisyTable(rng.normal(0, 200, shape), 200.0), first, second)
    assert ours.min() > 0
    np.testing.assert_allclose(ours.sum(axis=0), second, rtol=0.02, atol=5)
    np.testing.assert_allclose(ours.sum(axis=1), first, rtol=0.02, atol=5)


def test_the_estimated_risk_is_the_risk():
    truth = smooth_table(12, 8) - smooth_table(12, 8).mean()
    truth -= truth.mean(axis=0, keepdims=True)
    truth -= truth.mean(axis=1, keepdims=True)
    rng, found, guessed = np.random.default_rng(0), [], []
    for _ in range(300):
        noise = rng.normal(0, 80, truth.shape)
        noise += noise.mean() - noise.mean(axis=0, keepdims=True) - noise.mean(axis=1, keepdims=True)
        low = low_rank(truth + noise, 80.0)
        found.append(((low.values - truth) ** 2).sum())
        risk = ((low.values - truth - noise) ** 2).sum() + 2 * 80.0**2 * low.freedom
        guessed.append(risk - 80.0**2 * (truth.shape[0] - 1) * (truth.shape[1] - 1))
    assert np.mean(guessed) == pytest.approx(np.mean(found), rel=0.1)


def test_neighbouring_codes_that_are_alike_lend_to_each_other():
    rng, size = np.random.default_rng(2), 40
    share = 0.5 + 0.4 * np.sin(np.linspace(0, 6, size))  # of two codes, changing slowly along an ordered column
    truth = np.stack([share, 1 - share], axis=1) * 500
    noisy = truth + rng.normal(0, 100, truth.shape)
    found = estimated_joint(NoisyTable(noisy, 100.0), truth.sum(axis=1), truth.sum(axis=0))
    shuffled = rng.permutation(size)
    without = estimated_joint(NoisyTable(noisy[shuffled], 100.0), truth.sum(axis=1), truth.sum(axis=0))
    assert error(found, truth) < 0.75 * error(without, truth[shuffled])


def test_codes_that_determine_another_column_keep_their_rows_in_one_cell_beside_a_code_that_does_not():
    truth = np.zeros((40, 10))
    truth[np.arange(39), np.arange(39) % 10] = np.linspace(60, 600, 39)
    truth[39] = 50.0  # values that are merged
    noisy = truth + np.random.default_rng(0).normal(0, 12, truth.shape)
    ours = estimated_joint(NoisyTable(noisy, 12.0), truth.sum(axis=1), truth.sum(axis=0))
    assert ours[:39][truth[:39] == 0].sum() < 0.012 * truth.sum()
    assert error(ours[39], truth[39]) < error(np.maximum(noisy[39], 0), truth[39])


def test_a_column_that_nothing_determines_is_estimated_as_before():
    truth = np.random.default_rng(1).dirichlet(np.ones(6), 30) * 300
    noisy = truth + np.random.default_rng(0).normal(0, 20, truth.shape)
    projected = onto_simplex(noisy, truth.sum())
    ours = determined(noisy, projected, truth.sum(axis=1), 20.0)
    assert error(ours.values, truth) < 1.1 * error(projected, truth)


def test_freedom_of_determined_codes_is_the_derivative():
    noisy, held = np.array([[6.0, 4.0, 1.0]]), np.array([10.0])
    far = np.full((1, 3), 1e6)  # so bad that all of the row is taken

    def taken(counts):
        return determined(counts, far, held, 5.0).values

    steps = (noisy + 1e-4 * np.eye(3)[i] for i in range(3))
    derivative = sum((taken(step) - taken(noisy))[0, i] / 1e-4 for i, step in enumerate(steps))
    assert determined(noisy, far, held, 5.0).freedom == pytest.approx(derivative, rel=1e-3)
