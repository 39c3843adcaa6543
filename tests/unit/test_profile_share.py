from __future__ import annotations

import pytest

from privbench_core.privacy.budget import Measure, Price
from privbench_core.synthesizers.shares import profile_share


@pytest.mark.parametrize("measure", list(Measure))
def test_the_noisier_the_marginals_the_more_of_the_price_they_get(measure):
    shares = [profile_share(0.5, Price(measure, amount), [10.0] * 15) for amount in (1e3, 1.0, 0.1, 1e-3, 1e-6)]
    assert shares == sorted(shares)
    assert shares[0] == 0.5
    assert 0.5 < shares[-1] < 1


def test_two_looks_under_pure_privacy_are_unequal_early():
    price = Price(Measure.PURE, 0.2)
    assert profile_share(0.5, price, [10.0] * 15) > 0.8
    assert profile_share(0.5, price, [10.0] * 40) > profile_share(0.5, price, [10.0] * 10)


def test_the_declared_least_share_is_kept():
    assert profile_share(0.95, Price(Measure.PURE, 0.01), [10.0] * 15) == 0.95
    assert profile_share(0.3, Price(Measure.ZCDP, 1e6), [10.0] * 15) == 0.3


@pytest.mark.parametrize("measure", list(Measure))
def test_where_joints_have_many_cells_the_profile_gets_more(measure):
    price = Price(measure, 0.05)
    narrow, alike, wide = (profile_share(0.3, price, [codes] * 6) for codes in (2.0, 18.0, 80.0))
    assert narrow == pytest.approx(alike)
    assert wide > alike + 0.1
    assert profile_share(0.3, price, [2.0] * 5 + [80.0]) == pytest.approx(alike)
