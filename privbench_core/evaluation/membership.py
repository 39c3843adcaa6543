"""Membership-inference attacks: tell from a synthetic database which privacy units it was made from.

All units of the source are in the published bundle, so it has no non-members to test an attacker with. Instead the
synthesizer is rehearsed: each unit of a pool is kept with probability ½, the plan runs on the kept units at the same
(ε, δ) without releasing anything, and the attacker guesses which units were kept. One run with many independent coins
bounds ε from below (Steinke, Nasr and Jagielski 2023): under pure ε-DP the number of correct guesses is at most that of
a coin with probability e^ε/(1 + e^ε).

A bound above the promised ε indicates a bug. A bound below proves nothing: other attackers are better, above all those
that plant rows (as `tests/property` does).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.evaluation.encode import EncodedTable, encode_tables
from privbench_core.evaluation.joins import link_chain
from privbench_core.evaluation.nearest import nearest_distances
from privbench_core.evaluation.subsets import column_subsets
from privbench_core.schema.tables import Schema
from privbench_core.validate.references import NO_PARENT, parent_rows

RunOnRows = Callable[[Mapping[str, pa.Table]], Mapping[str, pa.Table]]
"""Private and public rows -> synthetic rows, by the plan of the evaluated bundle; nothing is released."""

POOL = 20_000
"""Maximum number of units in the experiment; fewer units make attacks easier, if anything. Chosen by hand."""
GUESSES = 500
"""Most confident guesses, half "in" and half "out"; fixed beforehand, so that the bound holds. Chosen by hand."""
_MAX_DISTANCES = 2_000  # units whose nearest synthetic record is searched; chosen by hand
_MAX_PAIRS = 60  # 2-way marginals per table; chosen by hand
_CONFIDENCE = 0.95  # of all bounds together; the usual one


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


def run_attacks(
    schema: Schema, tables: Mapping[str, pa.Table], rehearse: RunOnRows, seed: int = 0
) -> tuple[Attack, ...]:
    """Rehearse on a random half of (a pool of) the units and attack the result.

    Args:
        schema: The database.
        tables: Rows of the source.
        rehearse: The synthesizer at the bundle's budget.
        seed: Seed of the coins and of the attackers.
    """
    rng = np.random.default_rng(seed)
    units = tables[schema.unit].num_rows
    shuffled = rng.permutation(units)
    pool, others = shuffled[:POOL], shuffled[POOL:]
    member = rng.random(len(pool)) < 0.5  # noqa: PLR2004 - a fair coin
    if not 0 < member.sum() < len(pool):
        return ()
    synthetic = dict(rehearse(restrict_to_units(schema, tables, pool[member])))
    codes = encode_tables(schema, tables), encode_tables(schema, synthetic, tables)
    # The attacker knows the population from units outside the pool; if there are too few, from the whole pool.
    known = others if len(others) >= len(pool) // 2 else pool
    density = _density_scores(schema, tables, codes, pool, known, rng)
    some = np.sort(rng.choice(len(pool), min(_MAX_DISTANCES, len(pool)), replace=False))
    distance = -nearest_distances(codes[0][schema.unit], codes[1][schema.unit], rows=pool[some])
    found = (("marginals, against those of the population", density, member),
             ("nearest synthetic record", distance, member[some]))  # fmt: skip
    return tuple(
        score_attack(name, scores, truth, (1 - _CONFIDENCE) / len(found), rng) for name, scores, truth in found
    )


def restrict_to_units(
    schema: Schema, tables: Mapping[str, pa.Table], units: NDArray[np.integer]
) -> dict[str, pa.Table]:
    """Return the database of some units: their rows, all rows that depend on them, and the public tables."""
    keep = {schema.unit: np.isin(np.arange(tables[schema.unit].num_rows), units)}
    for table in schema.sampling_order:
        stays = keep.setdefault(table.name, np.ones(tables[table.name].num_rows, bool))
        for key in table.foreign_keys:
            if schema.table(key.parent).public or not key.cascades:
                continue
            rows = parent_rows(tables[key.parent], tables[table.name], key)
            stays &= np.where(rows == NO_PARENT, True, keep[key.parent][np.maximum(rows, 0)])
    return {name: rows.filter(pa.array(keep[name])) for name, rows in tables.items()}


def unit_of_rows(
    schema: Schema, tables: Mapping[str, pa.Table], coded: Mapping[str, EncodedTable], table: str
) -> NDArray[np.int64]:
    """Return the unit of each row of a private table, as a row of the unit's table, or `NO_PARENT`."""
    path = schema.ownership_path(table)
    return link_chain(path, tables, coded).links if path else np.arange(tables[table].num_rows)


def _density_scores(
    schema: Schema,
    tables: Mapping[str, pa.Table],
    codes: tuple[Mapping[str, EncodedTable], Mapping[str, EncodedTable]],
    pool: NDArray[np.integer],
    known: NDArray[np.integer],
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Return how much more frequent a unit's cells are in the synthetic marginals than in the population's.

    Log ratios of 1-way and 2-way marginals are summed over cells, and averaged over the unit's rows of each table,
    because the synthesizers release noisy marginals in which every unit has weight 1.
    """
    units = tables[schema.unit].num_rows
    score = np.zeros(units)
    for table in schema.private_tables:
        true, made = codes[0][table.name], codes[1][table.name]
        if not true.names or not len(true.codes) or not len(made.codes):
            continue
        of = unit_of_rows(schema, tables, codes[0], table.name)
        reference = true.codes[np.isin(of, known)]
        pairs = column_subsets(len(true.names), 2, _MAX_PAIRS, int(rng.integers(2**31))).subsets
        rows = np.zeros(len(true.codes))
        for columns in [*((i,) for i in range(len(true.names))), *pairs]:
            shape = [true.sizes[c] for c in columns]
            cells, *others = (
                np.ravel_multi_index([t[:, c] for c in columns], shape) for t in (true.codes, made.codes, reference)
            )
            synthetic, population = (_smoothed(np.bincount(other, minlength=1), cells) for other in others)
            rows += np.log(synthetic / population)
        owned = of != NO_PARENT
        sizes = np.bincount(of[owned], minlength=units)
        score += np.bincount(of[owned], weights=rows[owned], minlength=units) / np.maximum(sizes, 1)
    found: NDArray[np.float64] = score[pool]
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
    half = min(GUESSES, len(scores)) // 2
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
    from scipy.stats import beta

    if not right:
        return 0.0
    chance = float(beta.ppf(alpha, right, guesses - right + 1))  # Clopper and Pearson
    return float(max(0.0, np.log(chance / (1 - chance)))) if chance < 1 else float("inf")
