"""What `attacks` starts in the peers' own environment, which has scikit-learn: classifiers of members.

python classifier_child.py FOLDER

Half of the runs are shadows, whose members the classifiers learn; they guess in the other half, and the other way
round. `in.npz` holds features of units and of one row of each (runs, targets, features), coins (runs, targets), and
which targets have such a row.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

MOST = 20_000  # examples to learn from
TREES = {"max_iter": 60, "max_leaf_nodes": 8, "min_samples_leaf": 50, "l2_regularization": 1.0, "random_state": 0}


def main(folder: Path) -> None:
    """Write the score of each target in each run, by attack; NaN where it has no row to attack."""
    with np.load(folder / "in.npz") as given:
        units, rows, coins, has_row = (given[name] for name in ("units", "rows", "coins", "has_row"))
    shadow = np.arange(len(coins)) % 2 == 0
    names = ["shadow runs", "shadow runs, per target"] + (["FERMI", "one row"] if rows.shape[2] else [])
    scores = {name: np.full(coins.shape, np.nan) for name in names}
    for learnt, guessed in ((shadow, ~shadow), (~shadow, shadow)):
        calibrated = _per_target(units, learnt)
        scores["shadow runs"][guessed] = _learn(units[learnt], coins[learnt])(units[guessed])
        scores["shadow runs, per target"][guessed] = _learn(calibrated[learnt], coins[learnt])(calibrated[guessed])
        if rows.shape[2]:
            kept = np.ix_(guessed, has_row)
            mine, theirs = rows[learnt][:, has_row], rows[guessed][:, has_row]
            scores["one row"][kept] = _learn(mine, coins[learnt][:, has_row])(theirs)
            teacher = _learn(units[learnt][:, has_row], coins[learnt][:, has_row])(units[learnt][:, has_row])
            mapper = HistGradientBoostingRegressor(**TREES).fit(*_some(_flat(mine), teacher.ravel()))
            mine, theirs = (np.dstack([x, mapper.predict(_flat(x)).reshape(x.shape[:2])]) for x in (mine, theirs))
            scores["FERMI"][kept] = _learn(mine, coins[learnt][:, has_row])(theirs)
    np.savez(folder / "out.npz", **scores)


def _learn(features: np.ndarray, coins: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that gives log odds: the sum of a linear model's and of boosted trees'."""
    x, y = _some(_flat(features), coins.ravel())
    linear = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300)).fit(x, y)
    trees = HistGradientBoostingClassifier(**TREES).fit(x, y)

    def guess(new: np.ndarray) -> np.ndarray:
        flat = _flat(new)
        return (linear.decision_function(flat) + trees.decision_function(flat)).reshape(new.shape[:2])

    return guess


def _per_target(units: np.ndarray, learnt: np.ndarray) -> np.ndarray:
    """Center and scale the features of each target by its shadow runs, as likelihood ratio attacks do."""
    mine = units[learnt]
    spread = (mine.var(axis=0) + mine.var(axis=(0, 1))) / 2  # of few runs alone it would be noise
    return (units - mine.mean(axis=0)) / np.sqrt(spread + 1e-12)


def _flat(features: np.ndarray) -> np.ndarray:
    return features.reshape(-1, features.shape[2])


def _some(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.random.default_rng(0).permutation(len(x))[:MOST]
    return x[chosen], y[chosen]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
