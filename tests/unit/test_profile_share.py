from __future__ import annotations

import pytest

from privbench_core.privacy.budget import Measure, Price
from privbench_core.synthesizers.privbench import profile_share


@pytest.mark.parametrize("measure", list(Measure))
def test_the_noisier_the_marginals_the_more_of_the_price_they_get(measure):
    shares = [profile_share(0.5, Price(measure, amount), 15) for amount in (1e3, 1.0, 0.1, 1e-3, 1e-6)]
    assert shares == sorted(shares)
    assert shares[0] == 0.5
    assert 0.5 < shares[-1] < 1


def test_two_looks_under_pure_privacy_are_unequal_early():
    assert profile_share(0.5, Price(Measure.PURE, 0.2), 15) > 0.8
    assert profile_share(0.5, Price(Measure.PURE, 0.2), 40) > profile_share(0.5, Price(Measure.PURE, 0.2), 10)


def test_the_declared_least_share_is_kept():
    assert profile_share(0.95, Price(Measure.PURE, 0.01), 15) == 0.95
    assert profile_share(0.3, Price(Measure.ZCDP, 1e6), 15) == 0.3
