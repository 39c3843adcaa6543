"""Attacks on what the rows of a unit say: the three risks of the Article 29 Working Party's opinion 05/2014.

*Singling out*: a predicate that one synthetic row satisfies picks out exactly one row of the source. *Linkability*: two
halves of a row's columns have the same nearest synthetic record. *Inference*: a column of a row is that of its nearest
synthetic record by the other columns.

The attacks and their score are those of anonymeter (Giomi et al. 2023, "A unified framework for quantifying privacy
risk in synthetic data"): what succeeds as often on rows that the synthesizer never saw tells about the population, not
about a row, so the risk is (members - others)/(1 - others). They are done here in codes and by privacy unit, because
anonymeter needs older versions of NumPy and Arrow than privbench, and rows of one table in which each is a person.
``python -m benchmarks attacks`` compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privbench_core.evaluation.encode import EncodedTable
from privbench_core.evaluation.nearest import REFERENCE, find_nearest
from privbench_core.evaluation.rehearsed import TARGETS, Rehearsal


@dataclass(frozen=True)
class Risk:
    """The result of one attack on one table.

    Attributes:
        name: The attack.
        table: The table.
        guesses: Number of guesses about members, and as many about others.
        members: Share of them that are right for members.
        others: The same for units that the synthesizer did not see.
    """

    name: str
    table: str
    guesses: int
    members: float
    others: float

    @property
    def risk(self) -> float:
        """Share of what was left to learn that the synthetic rows tell about members, 0 to 1."""
        return max(0.0, (self.members - self.others) / (1 - self.others)) if self.others < 1 else 0.0

    @property
    def error(self) -> float:
        """Half the width of the 95% interval of ``members - others``, guesses taken as independent."""
        spread = sum(share * (1 - share) for share in (self.members, self.others))
        return 1.96 * math.sqrt(spread / max(self.guesses, 1))


def attribute_risks(rehearsal: Rehearsal, rng: np.random.Generator) -> tuple[Risk, ...]:
    """Attack every private table with two columns or more that are no keys.

    Args:
        rehearsal: What was run, on which units.
        rng: Chooses targets, columns and predicates.
    """
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
        halves = np.array_split(rng.permutation(len(true.names)), 2)
        secrets = rng.permutation(len(true.names))[:10].tolist()  # columns that are inferred
        predicates = _predicates(made, rng)
        attacks = {
            "singling out": [
                np.array([_satisfying(true.codes[rows[:size]], predicate) == 1 for predicate in predicates], bool)
                for rows in sides
            ],
            "linkability": [_linked(true, made, rows, halves) for rows in targets],
            "inference": [_inferred(true, made, rows, secrets) for rows in targets],
        }
        for name, (of_members, of_others) in attacks.items():
            if len(of_members):
                shares = float(of_members.mean()), float(of_others.mean())
                found.append(Risk(name, table.name, len(of_members), *shares))
    return tuple(found)


def _linked(
    true: EncodedTable, made: EncodedTable, rows: NDArray[np.int64], halves: list[NDArray[np.int64]]
) -> NDArray[np.bool_]:
    one, other = (find_nearest(true, made, rows, half.tolist())[0] for half in halves)
    same: NDArray[np.bool_] = one == other
    return same


def _inferred(true: EncodedTable, made: EncodedTable, rows: NDArray[np.int64], secrets: list[int]) -> NDArray[np.bool_]:
    """Return whether each secret of each row is guessed; an ordered one is if it is within 5% of the domain."""
    found = []
    for secret in secrets:
        known = [i for i in range(len(true.names)) if i != secret]
        guess = made.codes[find_nearest(true, made, rows, known)[0], secret]
        near = 0.05 * (true.sizes[secret] - 1) if true.ordered[secret] else 0.0  # anonymeter's tolerance
        found.append(np.abs(guess - true.codes[rows, secret]) <= near)
    return np.concatenate(found)


Predicate = list[tuple[int, int, int]]
"""(column, code, direction): equal to the code if 0, at least it if 1, at most it if -1."""


def _predicates(made: EncodedTable, rng: np.random.Generator) -> list[Predicate]:
    """Return predicates that exactly one synthetic row satisfies, built around random rows."""
    codes = made.codes[:REFERENCE]
    middle = np.median(codes, axis=0)
    found: list[Predicate] = []
    for _ in range(10 * TARGETS):  # many tries satisfy no row alone
        row = codes[rng.integers(len(codes))]
        columns = rng.permutation(len(row))[:3].tolist()  # as many as anonymeter takes
        predicate = [(c, int(row[c]), (1 if row[c] > middle[c] else -1) if made.ordered[c] else 0) for c in columns]
        if _satisfying(codes, predicate) == 1:
            found.append(predicate)
        if len(found) == TARGETS:
            break
    return found


def _satisfying(codes: NDArray[np.integer], predicate: Predicate) -> int:
    kept = np.ones(len(codes), dtype=bool)
    for column, code, direction in predicate:
        values = codes[:, column]
        kept &= values == code if not direction else values >= code if direction > 0 else values <= code
    return int(kept.sum())
