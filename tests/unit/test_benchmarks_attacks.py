"""Attacks of the benchmark: what they find where all or nothing leaks, and what a guarantee allows them to find."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.attack_features import Observer
from benchmarks.attacks import SYNTHESIZERS, Game, games_of, judge, most_auc
from privbench_core.privacy.budget import Budget
from tests.helpers.planted import place_of, planted_pair

_COINS = np.random.default_rng(0).random((40, 30)) < 0.5


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Game]:
    """The games of a small database of parents and children."""
    schema, rows = planted_pair(4500)
    place = place_of(Path(tmp_path_factory.mktemp("attacks")) / "place", schema, rows)
    return dict(games_of(place.spec, rows))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.2])
def test_no_attack_has_a_larger_area_than_the_guarantee_allows(epsilon: float):
    rng, trials = np.random.default_rng(0), (500, 200)
    coins = rng.random(trials) < 0.5
    told = coins ^ (rng.random(trials) < 1 / (1 + math.exp(epsilon)))  # randomized response
    found = judge(told.astype(float), coins)
    assert found.auc < most_auc(Budget(epsilon)) + 3 * found.error
    assert most_auc(Budget(epsilon)) == pytest.approx(found.auc, abs=4 * found.error)
    mu = math.sqrt(2 * Budget(epsilon, 1e-9).total().rho)
    noisy = judge(mu * coins + rng.normal(size=trials), coins)
    assert noisy.auc == pytest.approx(most_auc(Budget(epsilon, 1e-9)), abs=4 * noisy.error)


def test_scores_are_judged_with_their_error():
    perfect = judge(_COINS.astype(float), _COINS)
    assert (perfect.auc, perfect.error, perfect.caught) == (1.0, 0.0, 1.0)
    assert perfect.proven > 3
    assert judge(np.zeros(_COINS.shape), _COINS).auc == 0.5
    by_chance = [judge(np.random.default_rng(seed).random(_COINS.shape), _COINS) for seed in range(1, 60)]
    standardized = [(found.auc - 0.5) / found.error for found in by_chance]
    assert 0.7 < np.std(standardized) < 1.3
    assert max(found.proven for found in by_chance) < 0.1


def test_units_have_one_role_in_a_game(games: dict[str, Game]):
    for game in games.values():
        roles = np.concatenate([game.targets, game.always, game.known, game.strangers])
        assert len(np.unique(roles)) == len(roles)
        assert game.of(game.known)["parent"].num_rows == len(game.known)
    sizes = games["worst cases"]
    assert Observer(sizes.spec.schema, sizes.rows, sizes.targets, sizes.known).rows[:20].min() == 6  # of at most 6


def test_copies_are_nearest_to_members_and_copies_of_strangers_are_not(games: dict[str, Game]):
    game = games["half of the units"]
    observer = Observer(game.spec.schema, game.rows, game.targets, game.known)
    coins = np.random.default_rng(0).random(len(game.targets)) < 0.5
    units, rows = observer.look(SYNTHESIZERS["copies"].make(game, game.targets[coins], 0))
    assert np.isfinite(units).all()
    assert np.isfinite(rows).all()
    assert units[coins, 0] == pytest.approx(0, abs=1e-6)
    assert (units[~coins, 0] < -1e-6).any()
    chance, _ = observer.look(SYNTHESIZERS["copies other units"].make(game, game.targets[coins], 0))
    assert abs(chance[coins, 0].mean() - chance[~coins, 0].mean()) < 0.02
    assert observer.density(units)[coins].mean() > observer.density(units)[~coins].mean()


def test_rows_of_units_that_are_not_kept_whole_keep_their_columns(games: dict[str, Game]):
    game = games["half of the units"]
    members = game.targets[:500]
    made, kept = (SYNTHESIZERS[f"{name}"].make(game, members, 0) for name in ("keeps 10% of the units whole", "copies"))
    for name, rows in kept.items():
        for column in rows.column_names:
            assert sorted(made[name][column].to_pylist()) == sorted(rows[column].to_pylist())
    assert made["child"].sort_by("id") != kept["child"].sort_by("id")
