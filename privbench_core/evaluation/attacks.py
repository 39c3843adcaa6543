"""Attacks on a rehearsal (the plan of a bundle, run on a random half of the privacy units), and nearest records.

All units of the source are in the published bundle, so it has no non-members to test an attacker with. Instead each
unit of a pool is kept with probability ½, the plan runs on the kept units at the same (ε, δ) without releasing
anything, and the others are the control.

**Membership inference**: the attacker guesses which units were kept. One run with many independent coins bounds ε from
below (Steinke, Nasr and Jagielski 2023): under pure ε-DP the number of correct guesses is at most that of a coin with
probability e^ε/(1 + e^ε). Attackers differ by what they know of a unit: all of its rows, in all tables (*user-level*),
or one row of one table (*item-level*, what most published attacks on synthetic tables do). What they prove holds for
the same ε, because one row per unit is attacked; but where units have many rows, an item-level attacker sees the
smaller part of what is there (Ward, Wang and Cheng 2026, "Finding Connections: Membership Inference Attacks for the
Multi-Table Synthetic Data Setting"). A bound above the promised ε indicates a bug. A bound below proves nothing: other
attackers are better, above all those that plant rows (as `tests/property` does).

**The three risks** of the Article 29 Working Party's opinion 05/2014. *Singling out*: a predicate that one synthetic
row satisfies picks out exactly one row of the source. *Linkability*: two halves of a row's columns have the same
nearest synthetic record. *Inference*: a column of a row is that of its nearest synthetic record by the other columns.
These attacks and their score are those of anonymeter (Giomi et al. 2023, "A unified framework for quantifying privacy
risk in synthetic data"): what succeeds as often on rows that the synthesizer never saw is about the population, not
about a row, so the risk is (members - others)/(1 - others). They are done here in codes and by privacy unit, because
anonymeter needs older versions of NumPy and Arrow than privbench, and rows of one table in which each is a person.
``python -m benchmarks attacks`` compares the two.

The **distance** of two rows is the mean over attributes, from 0 (equal codes) to 1: ordered attributes differ by the
distance of their codes as a share of the domain, others by 0 or 1. Frequent rows (few attributes, small domains) always
have distance 0, so nearest records only count in comparison with those of the source's own rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import scipy
from numpy.typing import NDArray

from privbench_core.evaluation.joins import chain_links
from privbench_core.evaluation.marginals import EncodedTable, Figures, column_subsets, encode_tables
from privbench_core.sampling.keys import parent_rows
from privbench_core.schema.tables import Schema

RunOnRows = Callable[[Mapping[str, pa.Table]], Mapping[str, pa.Table]]
"""Private and public rows -> synthetic rows, by the plan of the evaluated bundle; nothing is released."""

SAMPLE = 2_000
"""Maximum number of rows to search neighbours for."""
REFERENCE = 20_000
"""Maximum number of rows to search among, and of units that attackers guess about."""
TARGETS = 500
"""Rows of members, and of others, that are attacked; predicates; and most confident guesses about units."""


@dataclass(frozen=True)
class Rehearsal:
    """What attackers see: rows of the source, and ``synthetic`` rows that the plan made from the units that were kept.

    Attributes:
        pool: Units whose coin was tossed, as rows of the unit's table; shape (units,).
        member: Whether each was kept; shape (units,).
        known: Units from which attackers know the population: those outside the pool, or all of it if they are few.
    """

    schema: Schema
    tables: Mapping[str, pa.Table]
    synthetic: Mapping[str, pa.Table]
    pool: NDArray[np.integer]
    member: NDArray[np.bool_]
    known: NDArray[np.integer]

    @cached_property
    def codes(self) -> tuple[dict[str, EncodedTable], dict[str, EncodedTable]]:
        """Source and synthetic rows in the same codes."""
        return encode_tables(self.schema, self.tables), encode_tables(self.schema, self.synthetic, self.tables)

    @cached_property
    def units(self) -> dict[str, NDArray[np.int64]]:
        """The unit of each row of each private table, as a row of the unit's table, or -1."""
        paths = {table.name: self.schema.ownership_path(table.name) for table in self.schema.private_tables}
        everyone = np.arange(self.tables[self.schema.unit].num_rows)
        return {name: chain_links(path, self.tables) if path else everyone for name, path in paths.items()}


def rehearse_half(
    schema: Schema, tables: Mapping[str, pa.Table], rehearse: RunOnRows, rng: np.random.Generator
) -> Rehearsal | None:
    """Run the plan on a random half of a pool of at most `REFERENCE` units; None if there are too few to halve.

    Fewer units make attacks easier, if anything.
    """
    shuffled = rng.permutation(tables[schema.unit].num_rows)
    pool, others = np.split(shuffled, [REFERENCE])
    member = rng.random(len(pool)) < 0.5  # noqa: PLR2004 - a fair coin
    if not 0 < member.sum() < len(pool):
        return None
    synthetic = dict(rehearse(restrict_to_units(schema, tables, pool[member])))
    return Rehearsal(schema, tables, synthetic, pool, member, others if len(others) >= len(pool) // 2 else pool)


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
            stays &= np.where(rows < 0, True, keep[key.parent][np.maximum(rows, 0)])
    return {name: rows.filter(pa.array(keep[name])) for name, rows in tables.items()}


def run_attacks(rehearsal: Rehearsal, rng: np.random.Generator) -> list[Figures]:
    """Infer membership from a rehearsal; the bounds on ε hold at 95% confidence for all attacks (`score_attack`)."""
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
        # Of the rows of a unit, a random one; NaN for units without any.
        scores, of = np.full(rehearsal.tables[schema.unit].num_rows, np.nan), rehearsal.units[table]
        mixed = rng.permutation(np.flatnonzero(of >= 0))
        scores[of[mixed]] = densities[table][mixed]
        has_rows = np.isfinite(scores[pool])
        found.append((f"marginals, one row of {table}", scores[pool][has_rows], member[has_rows]))
    return [score_attack(name, scores, truth, (1 - 0.95) / len(found), rng) for name, scores, truth in found]


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
            synthetic, population = (_smoothed_shares(other, cells) for other in others)
            rows += np.log(synthetic / population)
        found[table.name] = rows
    return found


def _smoothed_shares(rows: NDArray[np.integer], cells: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the share of rows in each cell of ``cells``, with half a row added to each cell; shape (cells,)."""
    counts = np.bincount(rows, minlength=int(cells.max(initial=0)) + 1)
    return np.asarray((counts[cells] + 0.5) / (counts.sum() + 1.0), dtype=np.float64)


def _of_units(rehearsal: Rehearsal, densities: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return a score per unit of the pool: the mean over its rows of each table, summed over tables.

    The mean, because the synthesizers release noisy marginals in which a unit weighs no more than 1.
    """
    units = rehearsal.tables[rehearsal.schema.unit].num_rows
    score = np.zeros(units)
    for table, rows in densities.items():
        owned = rehearsal.units[table] >= 0
        of = rehearsal.units[table][owned]
        score += np.bincount(of, rows[owned], units) / np.maximum(np.bincount(of, minlength=units), 1)
    return np.asarray(score[rehearsal.pool])


def score_attack(
    name: str, scores: NDArray[np.float64], member: NDArray[np.bool_], alpha: float, rng: np.random.Generator
) -> Figures:
    """Return the result of an attacker who infers membership.

    Args:
        name: The data that the attacker uses.
        scores: Score per unit, larger for members; shape (units,).
        member: Whether the unit is a member; shape (units,).
        alpha: Probability that the bound on ε is wrong.
        rng: Breaks ties between scores.

    Returns:
        The number of "units"; the area under the ROC curve ("auc"); the true positive rate at 1% false positives
        ("caught"); the number of most confident "guesses", of the "right" ones, and the ε that these prove.
    """
    order = np.lexsort((rng.random(len(scores)), scores))
    half = min(TARGETS, len(scores)) // 2  # guesses in, and guesses out; fixed beforehand, so that the bound holds
    right = int((~member[order[:half]]).sum() + member[order[len(order) - half :]].sum()) if half else 0
    ranked = member[order[::-1]]
    members, others = int(member.sum()), max(1, int((~member).sum()))
    ranks = np.flatnonzero(ranked[::-1]) + 1.0  # of members, by ascending score
    auc = (ranks.sum() - members * (members + 1) / 2) / max(1, members * others)
    flagged = np.cumsum(~ranked) <= others * 0.01
    caught = float((ranked & flagged).sum() / max(1, members))
    return {
        "name": name,
        "units": len(scores),
        "auc": float(auc),
        "caught": caught,
        "guesses": 2 * half,
        "right": right,
        "epsilon": epsilon_bound(right, 2 * half, alpha),
    }


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


def attribute_risks(rehearsal: Rehearsal, rng: np.random.Generator) -> list[Figures]:
    """Single out, link and infer in every private table with two columns or more that are no keys (`risk_of`)."""
    found = []
    for table in rehearsal.schema.private_tables:
        true, made = (codes[table.name] for codes in rehearsal.codes)
        of = rehearsal.units[table.name]
        sides = [  # rows of members and of others, in random order
            rng.permutation(np.flatnonzero(np.isin(of, rehearsal.pool[chosen])))
            for chosen in (rehearsal.member, ~rehearsal.member)
        ]
        size = min(map(len, sides))
        if len(true.names) < 2 or not size or not len(made.codes):  # noqa: PLR2004 - a half needs a column
            continue
        one_each = [rows[np.sort(np.unique(of[rows], return_index=True)[1])][:TARGETS] for rows in sides]
        targets = [rows[: min(map(len, one_each))] for rows in one_each]
        halves = [half.tolist() for half in np.array_split(rng.permutation(len(true.names)), 2)]
        secrets = rng.permutation(len(true.names))[:10].tolist()  # columns that are inferred
        predicates = _predicates(made, rng)
        attacks = {
            "singling out": [
                np.array([_matches(true.codes[rows[:size]], predicate) == 1 for predicate in predicates], bool)
                for rows in sides
            ],
            "linkability": [
                np.equal(*(find_nearest(true, made, rows, half)[0] for half in halves)) for rows in targets
            ],
            "inference": [_inferred(true, made, rows, secrets) for rows in targets],
        }
        found += [risk_of(name, table.name, *right) for name, right in attacks.items() if len(right[0])]
    return found


def risk_of(name: str, table: str, of_members: NDArray[np.bool_], of_others: NDArray[np.bool_]) -> Figures:
    """Return the result of an attack on a table, given which guesses about members and about others are right.

    Returns:
        The number of "guesses" about members, and as many about others; the shares that are right ("members",
        "others"); the share of what was left to learn that synthetic rows reveal about members ("risk"), 0 to 1; and
        half the width of the 95% interval of the difference, guesses taken as independent ("error").
    """
    members, others = float(of_members.mean()), float(of_others.mean())
    variance = sum(share * (1 - share) for share in (members, others)) / len(of_members)
    return {
        "name": name,
        "table": table,
        "guesses": len(of_members),
        "members": members,
        "others": others,
        "risk": max(0.0, (members - others) / (1 - others)) if others < 1 else 0.0,
        "error": 1.96 * math.sqrt(variance),
    }


def _inferred(
    true: EncodedTable, made: EncodedTable, rows: NDArray[np.int64], secrets: Sequence[int]
) -> NDArray[np.bool_]:
    """Return whether each secret of each row is guessed; an ordered one is if it is within 5% of the domain."""
    found = []
    for secret in secrets:
        known = [column for column in range(len(true.names)) if column != secret]
        guess = made.codes[find_nearest(true, made, rows, known)[0], secret]
        near = 0.05 * (true.sizes[secret] - 1) if true.ordered[secret] else 0.0  # anonymeter's tolerance
        found.append(np.abs(guess - true.codes[rows, secret]) <= near)
    return np.concatenate(found)


Conditions = list[tuple[int, int, int]]
"""(column, code, direction): equal to the code if 0, at least it if 1, at most it if -1."""


def _predicates(made: EncodedTable, rng: np.random.Generator) -> list[Conditions]:
    """Return predicates that exactly one synthetic row satisfies, built around random rows."""
    codes = made.codes[:REFERENCE]
    middle = np.median(codes, axis=0)
    found: list[Conditions] = []
    for _ in range(10 * TARGETS):  # many tries satisfy no row alone
        row = codes[rng.integers(len(codes))]
        columns = rng.permutation(len(row))[:3].tolist()  # as many as anonymeter takes
        predicate = [(c, int(row[c]), (1 if row[c] > middle[c] else -1) if made.ordered[c] else 0) for c in columns]
        if _matches(codes, predicate) == 1:
            found.append(predicate)
        if len(found) == TARGETS:
            break
    return found


def _matches(codes: NDArray[np.integer], predicate: Conditions) -> int:
    """Return how many rows satisfy a predicate."""
    kept = np.ones(len(codes), dtype=bool)
    for column, code, direction in predicate:
        values = codes[:, column]
        kept &= values == code if not direction else values >= code if direction > 0 else values <= code
    return int(kept.sum())


def nearest_records(true: EncodedTable, synthetic: EncodedTable, rng: np.random.Generator) -> Figures | None:
    """Return whether synthetic rows are nearer to one half of the source than its other half is.

    Returns:
        The number of "rows" compared on each side; the share of them that equal a row which the half has once
        ("synthetic_same", "source_same"), as frequent rows are equal in every faithful model; 5th percentile and median
        of the distances ("synthetic", "source"); and whether it is "suspicious" that synthetic rows equal such rows
        significantly more often. None without attributes or with too few rows.
    """
    mixed = rng.permutation(len(true.codes))
    half = min(len(mixed) // 2, REFERENCE)
    count = min(SAMPLE, len(mixed) - half, len(synthetic.codes))
    if not true.names or not half or not count:
        return None
    reference = replace(true, codes=true.codes[mixed[:half]])
    _, row_of, times = np.unique(reference.codes, axis=0, return_inverse=True, return_counts=True)
    once, columns = times[row_of.ravel()] == 1, range(len(true.names))
    nearest, made = find_nearest(synthetic, reference, rng.choice(len(synthetic.codes), count, replace=False), columns)
    of_source, real = find_nearest(true, reference, mixed[half : half + count], columns)
    same, same_of_source = (float((d[once[n]] == 0).sum() / count) for n, d in ((nearest, made), (of_source, real)))
    return {
        "rows": count,
        "synthetic_same": same,
        "source_same": same_of_source,
        "synthetic": tuple(np.percentile(made, (5, 50)).tolist()),
        "source": tuple(np.percentile(real, (5, 50)).tolist()),
        "suspicious": same > same_of_source + max(0.05, 3 * math.sqrt(0.25 / count)),
    }


def nearest_distances(of: EncodedTable, among: EncodedTable, rows: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the distance of each of ``rows`` of one table to its nearest record in another; shape (len(rows),)."""
    return find_nearest(of, among, rows, range(len(among.names)))[1]


def find_nearest(
    of: EncodedTable, among: EncodedTable, rows: NDArray[np.integer], columns: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the record of another table that is nearest to each of ``rows``, and its distance; shapes (len(rows),).

    Only ``columns`` are compared, with at most `REFERENCE` evenly spaced rows of ``among``. Of equally near records the
    first is returned.
    """
    step = np.linspace(0, len(among.codes) - 1, min(len(among.codes), REFERENCE)).astype(np.int64)
    records = [np.ascontiguousarray(_column(among.codes[step, i], among, i)) for i in columns]
    wanted = [_column(of.codes[rows, i], among, i) for i in columns]
    found, distance = np.zeros(len(rows), np.int64), np.full(len(rows), np.inf)
    for start in range(0, len(rows) if len(step) else 0, 200):  # a part at a time, to bound memory
        block = slice(start, start + 200)
        total = np.zeros((len(rows[block]), len(step)), np.float32)
        for i, mine, theirs in zip(columns, wanted, records, strict=True):
            total += np.abs(mine[block, None] - theirs) if among.ordered[i] else mine[block, None] != theirs
        best = total.argmin(axis=1)
        found[block], distance[block] = step[best], total[np.arange(len(best)), best]
    return found, distance / max(len(columns), 1)


def _column(codes: NDArray[np.integer], table: EncodedTable, position: int) -> NDArray[np.float32]:
    """Return ordered codes as numbers in [0, 1], and other codes unchanged."""
    scale = max(table.sizes[position] - 1, 1) if table.ordered[position] else 1
    return (codes / np.float32(scale)).astype(np.float32)
