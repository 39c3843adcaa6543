"""Record and replay over a leaf that measures signs, scores pairs, and screens and measures triples."""

from __future__ import annotations

import numpy as np
import pytest

from privbench_core.marginals.measure_one_way import Marginals
from privbench_core.marginals.measure_pairs import PairwiseFit
from privbench_core.marginals.measured import MeasuredLeaf
from privbench_core.marginals.one_way import OneWay
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.noise import NoiseSource
from privbench_core.privacy.views import CodedView, HeldRows
from privbench_core.synthesizers.artifact import Artifact
from tests.helpers.noise import RecordingNoise, ReplayNoise, SeededNoise, Violation

N = 2_000
SIZES = {"a": 2, "b": 2, "c": 2, "x": 6, "y": 6, "z": 6}
ORDERED = {"x": 6, "y": 6, "z": 5}
PRICES = [Price(Measure.PURE, 20.0), Price(Measure.GDP, 5.0)]


def rows(seed: int = 0) -> CodedView:
    """Three bits of a parity and three correlated columns, the last with a code without order."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 2, (2, N))
    common = rng.normal(size=N)
    codes = {"a": a, "b": b, "c": a ^ b ^ (rng.random(N) < 0.1)}
    codes |= {name: np.clip(((common + rng.normal(size=N)) * 1.3 + 3).astype(int), 0, 5) for name in "xyz"}
    held = HeldRows({name: each.astype(np.uint8) for name, each in codes.items()}, SIZES, None, N)
    return CodedView(held, SIZES, 1, 1, 1)


def released(view: CodedView, one_way: OneWay, price: Price, noise: NoiseSource) -> bytes:
    """All that the leaf releases of these rows."""
    account = PrivacyFilter(price, lambda *_: None)
    curator = Curator(view, account, noise, "leaf")
    found = PairwiseFit().find(Marginals(curator, one_way), price, ORDERED)
    assert isinstance(found, MeasuredLeaf)
    assert account.spent.amount == pytest.approx(price.amount)
    return Artifact({"measured": found.to_dict()}).to_bytes()


@pytest.mark.parametrize("price", PRICES, ids=["pure", "Gaussian"])
def test_one_row_moves_nothing_but_what_noise_covers(price: Price) -> None:
    view = rows()
    one_way = OneWay.with_sigma({name: view.counts((name,)) + 0.5 for name in SIZES}, 5.0)
    tape = RecordingNoise(SeededNoise(0))
    first = released(view, one_way, price, tape)
    sites = " ".join(call.head[1] for call in tape.tape)
    for site in ("leaf/signs", "leaf/dependence scores", "leaf/triple scores", "leaf/a x b x c"):
        assert site in sites
    for row in (0, 1, 2, N - 1):
        noise = ReplayNoise(tape.tape)
        assert released(view.take(np.arange(N) != row), one_way, price, noise) == first
        noise.finish()
        assert 0 < noise.loss <= price.amount * (1 + 1e-9)
    with pytest.raises(Violation, match="shift"):
        released(view.take(np.arange(N) > 0), one_way, price, ReplayNoise(tape.tape, claim=0.5))
