"""Membership-inference attacks: tell from a synthetic database which privacy units it was made from.

Each unit of a rehearsal (`rehearsed`) was kept with probability ½, and the attacker guesses which. One run with many
independent coins bounds ε from below (Steinke, Nasr and Jagielski 2023): under pure ε-DP the number of correct guesses
is at most that of a coin with probability e^ε/(1 + e^ε).

Attackers differ by what they know of a unit: all of its rows, in all tables (*user-level*), or one row of one table
(*item-level*, what most published attacks on synthetic tables do). What they prove holds for the same ε, because one
row per unit is attacked; but where units have many rows, an item-level attacker sees the smaller part of what is
there. For synthetic relational data this was found with learned attackers (Ward, Wang and Cheng 2026, "Finding
Connections: Membership Inference Attacks for the Multi-Table Synthetic Data Setting").

A bound above the promised ε indicates a bug. A bound below proves nothing: other attackers are better, above all those
that plant rows (as `tests/property` does).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from privbench_core.evaluation.nearest import SAMPLE, nearest_distances
from privbench_core.evaluation.rehearsed import TARGETS, Rehearsal
from privbench_core.evaluation.subsets import column_subsets
from privbench_core.validate.references import NO_PARENT


@dataclass(frozen=True)
class Attack:
    """The result of one attacker.

    Attributes:
        name: The data that the attacker uses.
        units: Number of scored units.
        auc: Area under the ROC curve; ½ is random guessing.
        caught: True positive rate at 1% false positives.
        guesses: Number of most confident guesses.
        right: Number of correct ones.
        epsilon: Lower bound on ε that ``right`` proves, at 95% confidence for all attacks together.
    """

    name: str
    units: int
    auc: float
    caught: float
    guesses: int
    right: int
    epsilon: float


def run_attacks(rehearsal: Rehearsal, rng: np.random.Generator) -> tuple[Attack, ...]:
    """Attack a rehearsal.

    Args:
        rehearsal: What was run, on which units.
        rng: Chooses what is looked at, and breaks ties.
    """
    schema, member, pool = rehearsal.schema, rehearsal.member, rehearsal.pool
    densities = _densities(rehearsal, rng)
    source, synthetic = rehearsal.codes
    some = np.sort(rng.choice(len(pool), min(SAMPLE, len(pool)), replace=False))
    distance = -nearest_distances(source[schema.unit], synthetic[schema.unit], rows=pool[some])
    found = [
        ("marginals, all rows of a unit", _of_units(rehearsal, densities), member),
        ("nearest synthetic record", distance, member[some]),
    ]
    below = {t.name: len(densities[t.name]) for t in schema.private_tables if t.name in densities and t.owner_key}
    if below:
        table = max(below, key=lambda name: below[name])
        scores = _of_one_row(rehearsal, table, densities[table], rng)
        has_rows = np.isfinite(scores)
        found.append((f"marginals, one row of {table}", scores[has_rows], member[has_rows]))
    return tuple(score_attack(name, scores, truth, (1 - 0.95) / len(found), rng) for name, scores, truth in found)


def _densities(rehearsal: Rehearsal, rng: np.random.Generator) -> dict[str, NDArray[np.float64]]:
    """Return how much more frequent each row's cells are in the synthetic marginals than in the population's.

    Log ratios of 1-way and 2-way marginals, summed over cells; shape (rows,) by private table.
    """
    found = {}
    for table in rehearsal.schema.private_tables:
        true, made = (codes[table.name] for codes in rehearsal.codes)
        if not true.names or not len(true.codes) or not len(made.codes):
            continue
        reference = true.codes[np.isin(rehearsal.units[table.name], rehearsal.known)]
        pairs = column_subsets(len(true.names), 2, 60, int(rng.integers(2**31))).subsets
        rows = np.zeros(len(true.codes))
        for columns in [*((i,) for i in range(len(true.names))), *pairs]:
            shape = [true.sizes[c] for c in columns]
            cells, *others = (
                np.ravel_multi_index([t[:, c] for c in columns], shape) for t in (true.codes, made.codes, reference)
            )
            synthetic, population = (_smoothed(np.bincount(other, minlength=1), cells) for other in others)
            rows += np.log(synthetic / population)
        found[table.name] = rows
    return found


def _of_units(rehearsal: Rehearsal, densities: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return a score per unit of the pool: the mean over its rows of each table, summed over tables.

    The mean, because the synthesizers release noisy marginals in which a unit weighs no more than 1.
    """
    units = rehearsal.tables[rehearsal.schema.unit].num_rows
    score = np.zeros(units)
    for table, rows in densities.items():
        of = rehearsal.units[table]
        owned = of != NO_PARENT
        sizes = np.bincount(of[owned], minlength=units)
        score += np.bincount(of[owned], weights=rows[owned], minlength=units) / np.maximum(sizes, 1)
    found: NDArray[np.float64] = score[rehearsal.pool]
    return found


def _of_one_row(
    rehearsal: Rehearsal, table: str, rows: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the score of one random row of a table per unit of the pool; NaN for units without one."""
    of = rehearsal.units[table]
    score = np.full(rehearsal.tables[rehearsal.schema.unit].num_rows, np.nan)
    mixed = rng.permutation(np.flatnonzero(of != NO_PARENT))
    score[of[mixed]] = rows[mixed]  # of several rows, the last one stays
    found: NDArray[np.float64] = score[rehearsal.pool]
    return found


def _smoothed(counts: NDArray[np.integer], cells: NDArray[np.integer]) -> NDArray[np.float64]:
    found = np.where(cells < len(counts), counts[np.minimum(cells, len(counts) - 1)], 0)
    return np.asarray((found + 0.5) / (counts.sum() + 1.0), dtype=np.float64)


def score_attack(
    name: str, scores: NDArray[np.float64], member: NDArray[np.bool_], alpha: float, rng: np.random.Generator
) -> Attack:
    """Return the result of an attacker.

    Args:
        name: Name of the attack.
        scores: Score per unit, larger for members; shape (units,).
        member: Whether the unit is a member; shape (units,).
        alpha: Probability that the bound on ε is wrong.
        rng: Breaks ties between scores.
    """
    order = np.lexsort((rng.random(len(scores)), scores))
    half = min(TARGETS, len(scores)) // 2  # guesses in, and guesses out; fixed beforehand, so that the bound holds
    right = int((~member[order[:half]]).sum() + member[order[len(order) - half :]].sum()) if half else 0
    ranked = member[order[::-1]]
    non_members = max(1, int((~member).sum()))
    rank = np.empty(len(order))
    rank[order] = np.arange(1, len(order) + 1)
    members = int(member.sum())
    auc = (rank[member].sum() - members * (members + 1) / 2) / max(1, members * non_members)
    flagged = np.cumsum(~ranked) <= non_members * 0.01
    caught = float((ranked & flagged).sum() / max(1, members))
    return Attack(name, len(scores), float(auc), caught, 2 * half, right, epsilon_bound(right, 2 * half, alpha))


def epsilon_bound(right: int, guesses: int, alpha: float) -> float:
    """Return the largest ε that ``right`` correct of ``guesses`` rule out, at confidence 1 - ``alpha``; 0 if none.

    Theorem 5.2 of Steinke et al. for δ = 0; not exact for δ > 0, as reports say.

    >>> epsilon_bound(250, 500, 0.05)
    0.0
    >>> round(epsilon_bound(400, 500, 0.05), 1)
    1.2
    """
    if not right:
        return 0.0
    chance = float(scipy.stats.beta.ppf(alpha, right, guesses - right + 1))  # Clopper and Pearson
    return float(max(0.0, np.log(chance / (1 - chance)))) if chance < 1 else float("inf")
