"""A membership-inference attack, as an experiment: can one tell which units a synthetic database was made from?

The published bundle cannot be attacked honestly: all units of the source are in it, so there is nobody to be wrong
about. So the synthesizer is rehearsed instead: every unit of a pool is kept with probability ½, the whole plan is run
on the kept ones at the same (ε, δ), nothing of that is released, and the attacker has to say who was kept. One run with
many coins bounds ε from below (Steinke, Nasr and Jagielski 2023): under pure ε-DP the number of right guesses is at
most that of a coin that falls right with probability e^ε/(1 + e^ε).

What it can show: a bound above the promised ε is a bug. What it cannot: a bound below proves nothing, for other
attackers are better, above all those who may plant rows (the tests do that, `tests/property`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.evaluate.encode import EncodedTable, encode_tables
from privbench_core.evaluate.joins import link_chain
from privbench_core.evaluate.nearest import nearest_distances
from privbench_core.evaluate.subsets import column_subsets
from privbench_core.schema.tables import Schema
from privbench_core.validate.references import NO_PARENT, parent_rows

RunOnRows = Callable[[Mapping[str, pa.Table]], Mapping[str, pa.Table]]
"""Private and public rows -> synthetic rows, by the plan whose bundle is judged; nothing of it is released."""

POOL = 20_000
"""Units whose coin is thrown at most; a synthesizer that sees fewer units hides each of them less well, if at all."""
GUESSES = 500
"""The surest guesses, half of them "in" and half "out": fixed beforehand, so that the bound holds."""
_DISTANCES = 2_000  # units whose nearest synthetic record is looked for
_PAIRS = 60
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Attack:
    """How one attacker fared.

    Attributes:
        name: What the attacker looks at.
        units: Units that were scored.
        auc: Probability that a member's score is above a non-member's; ½ is guessing.
        caught: Share of members found where 1% of the non-members are accused.
        guesses: The surest guesses that were made.
        right: How many of them were right.
        epsilon: Lower bound on ε that ``right`` proves, at 95% confidence for all attacks together.
    """

    name: str
    units: int
    auc: float
    caught: float
    guesses: int
    right: int
    epsilon: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)


def run_attacks(
    schema: Schema, tables: Mapping[str, pa.Table], rehearse: RunOnRows, seed: int = 0
) -> tuple[Attack, ...]:
    """Rehearse on a random half of (a pool of) the units and attack the result.

    Args:
        schema: The database.
        tables: Rows of the source.
        rehearse: The synthesizer at the budget of the bundle.
        seed: Of the coins and the attackers' own draws.
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
    # What the attacker knows of the population: units outside of the pool, or where all are in it, the pool as a whole.
    known = others if len(others) >= len(pool) // 2 else pool
    density = _density_scores(schema, tables, codes, pool, known, rng)
    some = np.sort(rng.choice(len(pool), min(_DISTANCES, len(pool)), replace=False))
    distance = -nearest_distances(codes[0][schema.unit], codes[1][schema.unit], rows=pool[some])
    found = (("marginals, against those of the population", density, member),
             ("nearest synthetic record", distance, member[some]))  # fmt: skip
    return tuple(
        score_attack(name, scores, truth, (1 - _CONFIDENCE) / len(found), rng) for name, scores, truth in found
    )


def restrict_to_units(
    schema: Schema, tables: Mapping[str, pa.Table], units: NDArray[np.integer]
) -> dict[str, pa.Table]:
    """The database of some units: their rows and all that depend on them through any key, public tables whole."""
    keep = {schema.unit: np.isin(np.arange(tables[schema.unit].num_rows), units)}
    for table in schema.sampling_order:
        stays = keep.setdefault(table.name, np.ones(tables[table.name].num_rows, bool))
        for key in table.foreign_keys:
            if key.name in schema.deferred_keys or schema.table(key.parent).public:
                continue
            rows = parent_rows(tables[key.parent], tables[table.name], key)
            stays &= np.where(rows == NO_PARENT, True, keep[key.parent][np.maximum(rows, 0)])
    return {name: rows.filter(pa.array(keep[name])) for name, rows in tables.items()}


def unit_of_rows(
    schema: Schema, tables: Mapping[str, pa.Table], coded: Mapping[str, EncodedTable], table: str
) -> NDArray[np.int64]:
    """The unit of each row of a private table, as a row of the unit's table; `NO_PARENT` where it has none."""
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
    """How much commoner a unit's cells are in the synthetic marginals than in those of the population.

    Log ratios of 1-way and 2-way marginals, added up over cells and averaged over the unit's rows of each table: what
    these synthesizers release are noisy marginals in which every unit weighs one.
    """
    units = tables[schema.unit].num_rows
    score = np.zeros(units)
    for table in schema.private_tables:
        true, made = codes[0][table.name], codes[1][table.name]
        if not true.names or not len(true.codes) or not len(made.codes):
            continue
        of = unit_of_rows(schema, tables, codes[0], table.name)
        reference = true.codes[np.isin(of, known)]
        pairs = column_subsets(len(true.names), 2, _PAIRS, int(rng.integers(2**31))).subsets
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
    """Count what an attacker found.

    Args:
        name: Of the attack.
        scores: Per unit, larger for "was in"; shape (units,).
        member: Whether it was.
        alpha: Probability with which the bound on ε may be wrong.
        rng: Breaks pair tables between scores.
    """
    order = np.lexsort((rng.random(len(scores)), scores))
    half = min(GUESSES, len(scores)) // 2
    right = int((~member[order[:half]]).sum() + member[order[len(order) - half :]].sum()) if half else 0
    ranked = member[order[::-1]]
    outside = max(1, int((~member).sum()))
    rank = np.empty(len(order))
    rank[order] = np.arange(1, len(order) + 1)
    inside = int(member.sum())
    auc = (rank[member].sum() - inside * (inside + 1) / 2) / max(1, inside * outside)
    accused = np.cumsum(~ranked) <= outside * 0.01
    caught = float((ranked & accused).sum() / max(1, inside))
    return Attack(name, len(scores), float(auc), caught, 2 * half, right, epsilon_bound(right, 2 * half, alpha))


def epsilon_bound(right: int, guesses: int, alpha: float) -> float:
    """The largest ε that ``right`` of ``guesses`` right rule out, at confidence 1 - ``alpha``; 0 if none.

    Theorem 5.2 of Steinke et al. for δ = 0; for δ > 0 it is not exact, and we say so where it is shown.

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
