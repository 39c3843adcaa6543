"""A glance at all columns together: it sees dense, sparse and parity-like dependences, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest

from privbench_core.engines.memory.database import PrivateDatabase
from privbench_core.measure.glance import Glance, glance, share_of_glance
from privbench_core.measure.privspn import PairwiseSPN
from privbench_core.measure.table import learn_table
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.noise import NoiseSource, Sensitivity, noise_std
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.columns import Column, ColumnType, Values
from privbench_core.schema.tables import Schema, Table
from tests.helpers.noise import RecordingNoise, ReplayNoise, SeededNoise
from tests.helpers.planted import curator_of, integer, one_way_of, rows_of

N, WIDTH = 8_000, 4
NAMES = tuple(f"c{i:02d}" for i in range(8))
PAIRS = list(combinations(NAMES, 2))
Made = dict[str, np.ndarray]


def independent(n: int = N) -> Made:
    rng = np.random.default_rng(1)
    return {name: rng.integers(0, WIDTH, n).astype(np.int32) for name in NAMES}


def dense(n: int = N) -> Made:
    rng = np.random.default_rng(2)
    common = rng.integers(0, WIDTH, n)
    return {name: np.where(rng.random(n) < 0.7, common, col).astype(np.int32) for name, col in independent(n).items()}


def sparse() -> Made:
    made = independent()
    return made | {"c01": made["c00"]}


def parity() -> Made:
    made = independent()
    return made | {"c02": ((made["c00"] + made["c01"]) % WIDTH).astype(np.int32)}


def seen(codes: Made, sigma: float = 0.0) -> Glance:
    curator, account = curator_of(codes, dict.fromkeys(NAMES, WIDTH), Price(Measure.PURE, 1.0))
    one_way = one_way_of(codes, dict.fromkeys(NAMES, WIDTH), sigma=sigma)
    found = glance(curator, one_way, PAIRS, PAIRS[:3], [("c00", "c01", "c02")], Price(Measure.PURE, 1.0))
    assert account.spent.amount == pytest.approx(1.0)
    return found


def test_what_depends_is_seen_each_in_its_way() -> None:
    none, everywhere, one, three = (seen(made()) for made in (independent, dense, sparse, parity))
    assert max(none.mean, none.ordered) < 0.02
    assert none.best < 0.05  # rows are a sample: 0.4 √(64 / 8000)
    assert min(everywhere.mean, everywhere.ordered) > 0.2
    assert one.mean < 0.05
    assert one.best == pytest.approx(0.75, abs=0.03)
    assert three.mean < 0.03
    assert three.best == pytest.approx(0.75, abs=0.03)


def test_noise_of_the_marginals_is_no_dependence() -> None:
    noisy = seen(independent(), sigma=300.0)
    assert max(noisy.mean, noisy.ordered) < 0.05
    assert seen(dense(), sigma=300.0).mean > 0.15


def test_a_glance_costs_less_where_there_is_more_to_see() -> None:
    curator, _ = curator_of(independent(), dict.fromkeys(NAMES, WIDTH))
    shares = [share_of_glance(curator, total, Price(Measure.PURE, 0.5)) for total in (100.0, 1e5, 1e6)]
    assert shares[0] == 0.06
    assert shares[0] > shares[1] > shares[2] > 0
    assert shares[1] == pytest.approx(10 * shares[2])


def learned(codes: Made, amount: float, noise: NoiseSource, n: int) -> tuple[float, bool, float]:
    """Standard deviation of a cell, whether a joint was measured, and what it cost."""
    columns = [Column(name, ColumnType.INTEGER, Values(tuple(range(WIDTH)))) for name in NAMES]
    table = Table("t", (integer("id"), *columns), ("id",))
    rows = rows_of(table, id=np.arange(n), **{name: column[:n] for name, column in codes.items()})
    account = PrivacyFilter(Price(Measure.PURE, amount), lambda *_: None)
    database = PrivateDatabase(Schema("s", (table,), "t"), {"t": rows}, bytes(16))
    session = PrivateSession(database, account, noise, "t")
    cells, _, measured = learn_table(session, table, 1, Price(Measure.PURE, amount), 0.5, PairwiseSPN)
    return cells.looks["c00"].sigma, bool(measured.fit().pairs), account.spent.amount  # type: ignore[union-attr]


@pytest.mark.parametrize(("made", "joints"), [(independent, False), (dense, True)])
def test_where_nothing_depends_little_is_lost_under_pure_privacy(made: Callable[[], Made], joints: bool) -> None:
    sigma, found, spent = learned(made(), 0.5, SeededNoise(3), N)
    once = noise_std(Sensitivity(1, 1), Price(Measure.PURE, 0.5 / len(NAMES)))
    assert found is joints
    assert spent == pytest.approx(0.5)
    assert (sigma > 1.5 * once) if joints else (once < sigma < 1.06 * once)


@pytest.mark.parametrize(("made", "asked"), [(independent, "refine"), (dense, "add")])
def test_a_neighbour_takes_the_same_way_at_no_more_than_the_price(made: Callable[[], Made], asked: str) -> None:
    codes, n = made(), 2_000
    recorded = RecordingNoise(SeededNoise(4))
    learned(codes, 1.0, recorded, n)
    kinds = [call.head[0] for call in recorded.tape]
    assert "hold" in kinds
    assert "choose" in kinds
    assert kinds[-1] == asked
    replayed = ReplayNoise(recorded.tape)
    learned(codes, 1.0, replayed, n - 1)
    replayed.finish()
    assert 0 < replayed.loss <= 1.0 + 1e-9
