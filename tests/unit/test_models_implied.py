from __future__ import annotations

import numpy as np

from privbench_core.estimate.implied_pairs import implied_pairs

RNG = np.random.default_rng(0)
A_C = RNG.dirichlet(np.ones(12)).reshape(4, 3)
C_MARGIN = A_C.sum(axis=0)
B_GIVEN_C = RNG.dirichlet(np.ones(5), 3)
C_B = C_MARGIN[:, None] * B_GIVEN_C
MARGINALS = {"a": A_C.sum(axis=1), "b": C_B.sum(axis=0), "c": C_MARGIN, "d": np.array([0.25, 0.75])}


def test_what_two_columns_share_with_a_third_ties_them():
    implied = implied_pairs({("a", "c"): A_C, ("c", "b"): C_B}, MARGINALS, 10)
    assert next(iter(implied)) == ("a", "b")
    np.testing.assert_allclose(implied["a", "b"], np.einsum("ac,cb->ab", A_C, B_GIVEN_C))


def test_columns_that_nothing_ties_are_independent():
    implied = implied_pairs({("a", "c"): A_C, ("b", "c"): C_B.T}, MARGINALS, 10)
    assert set(implied) == {("a", "b"), ("a", "d"), ("b", "d"), ("c", "d")}
    np.testing.assert_allclose(implied["c", "d"], np.outer(MARGINALS["c"], MARGINALS["d"]))


def test_the_strongest_third_is_taken_and_the_strongest_pairs_are_kept():
    weak = np.outer(MARGINALS["a"], MARGINALS["d"])
    pairs = {("a", "c"): A_C, ("c", "b"): C_B, ("a", "d"): weak, ("d", "b"): np.outer(MARGINALS["d"], MARGINALS["b"])}
    implied = implied_pairs(pairs, MARGINALS, 1)
    assert list(implied) == [("a", "b")]
    np.testing.assert_allclose(implied["a", "b"], np.einsum("ac,cb->ab", A_C, B_GIVEN_C))


def test_no_room_means_no_pairs():
    assert implied_pairs({("a", "c"): A_C}, MARGINALS, 0) == {}
