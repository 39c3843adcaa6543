"""Households and persons of a made-up population whose correlations are known, as a spec over Parquet files.

The distribution of `households` is that of the 20,000 households on which the figures of the authors' code and of other
relational peers were measured, so that figures can stand side by side. It is drawn in another order, column by column:
the databases are equal in distribution, not row by row.

Each household is of one of four kinds (students, a family, pensioners, single professionals), which decide its size and
its head. Members take after the head: race as the head's in 92 of 100, a spouse of about the same age and schooling, a
child a generation younger. A person's income follows schooling, age and work, and the household's is the sum of them;
tenure, rooms and vehicles follow from that.

`california` is the same population in the shape of the paper's largest data set (Table 5): as many households, persons
and attributes, in domains of the same products.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import dump_spec
from privbench_core.spec.model import Spec

Codes = NDArray[np.int64]
Columns = dict[str, Codes]
Rng = np.random.Generator

EPSILONS = (0.2, 0.4, 0.8, 1.6, 3.2)
LARGEST = 8  # persons in a household, the declared bound as well
SEED = 7

HOUSEHOLD = {"region": 8, "urban": 2, "tenure": 3, "htype": 5, "rooms": 9, "vehicles": 5, "hincome": 12}
PERSON = {"rel": 5, "age": 18, "sex": 2, "race": 5, "edu": 8, "emp": 4, "marital": 5, "income": 12}
# Beside the above: 10 and 23 attributes, products 3.24e7 and 6.77e12.
MORE_HOUSEHOLD = {"built": 10, "fuel": 5, "internet": 5}
MORE_PERSON = {
    "birthplace": 9, "occupation": 7, "language": 3, "english": 3, "hispanic": 3, "commute": 3, "hours": 3,
    "citizen": 2, "veteran": 2, "school": 2, "disabled": 2, "insured": 2, "moved": 2, "licence": 2, "benefits": 2,
}  # fmt: skip
ORDERED = frozenset({"rooms", "vehicles", "hincome", "age", "edu", "income", "built", "internet", "english", "hours"})

_STUDENTS, _FAMILY, _PENSIONERS, _SINGLE = range(4)
_HEAD, _SPOUSE, _CHILD, _RELATIVE, _MATE = range(5)
_SIZES = np.array(
    [
        [0.35, 0.30, 0.20, 0.10, 0.05, 0, 0, 0],
        [0, 0.22, 0.27, 0.28, 0.13, 0.06, 0.03, 0.01],
        [0.55, 0.43, 0.02, 0, 0, 0, 0, 0],
        [0.75, 0.25, 0, 0, 0, 0, 0, 0],
    ]
)
_RACES = np.array(
    [
        [0.60, 0.15, 0.10, 0.10, 0.05],
        [0.50, 0.20, 0.15, 0.10, 0.05],
        [0.70, 0.10, 0.10, 0.05, 0.05],
        [0.80, 0.10, 0.05, 0.03, 0.02],
    ]
)


@dataclass(frozen=True)
class Population:
    """A database of two tables as codes.

    Attributes:
        household: Attributes, each of shape (households,).
        person: Attributes, each of shape (persons,), households together and heads first.
        home: The household of each person, shape (persons,).
        domains: Domain size by attribute.
    """

    household: Columns
    person: Columns
    home: Codes
    domains: Mapping[str, int]

    def save(self, folder: Path, name: str) -> Spec:
        """Write both tables and the spec to ``folder``; δ is one over the number of persons."""
        owner = ForeignKey("person", ("household_id",), "household", ("id",), LARGEST, owner=True)
        identity = Column("id", ColumnType.INTEGER)
        of_household = (identity, *self._declared(self.household))
        of_person = (identity, Column("household_id", ColumnType.INTEGER), *self._declared(self.person))
        schema = Schema(
            name,
            (Table("household", of_household, ("id",)), Table("person", of_person, ("id",), (owner,))),
            "household",
        )
        households, persons = len(self.household["region"]), len(self.home)
        pq.write_table(pa.table({"id": np.arange(households), **self.household}), folder / "household.parquet")
        rows = {"id": np.arange(persons), "household_id": self.home, **self.person}
        pq.write_table(pa.table(rows), folder / "person.parquet")
        spec = Spec(
            schema, str(folder), folder / f"{name}.yaml", EPSILONS, 1 / persons, 20.0, 0.1, state=folder / "state"
        )
        spec.path.write_text(dump_spec(spec), encoding="utf-8")
        return spec

    def _declared(self, columns: Columns) -> list[Column]:
        sizes = {name: self.domains[name] for name in columns}
        return [
            Column(name, ColumnType.INTEGER, Range(0, size - 1) if name in ORDERED else Values(tuple(range(size))))
            for name, size in sizes.items()
        ]


def households(count: int = 20_000, seed: int = SEED) -> Population:
    """About 2.4 persons to a household, with 7 and 8 attributes."""
    rng = np.random.default_rng(seed)
    homes = _homes(count, rng)
    size = 1 + _drawn(_SIZES[homes["kind"]], rng)
    return _population(homes, size, rng)


def california(count: int = 616_115, persons: int = 1_690_642, seed: int = SEED) -> Population:
    """As many households and persons as asked for exactly, with 10 and 23 attributes; families are larger."""
    rng = np.random.default_rng(seed)
    homes = _homes(count, rng)
    size = _grown(1 + _drawn(_SIZES[homes["kind"]], rng), homes["kind"] == _FAMILY, persons, rng)
    whole = _population(homes, size, rng)
    _furnish(whole, rng)
    _describe(whole, rng)
    return whole


def _drawn(shares: NDArray[np.float64], rng: Rng) -> Codes:
    """One code per row of weights."""
    edges = np.cumsum(shares, axis=1)
    return (rng.random((len(shares), 1)) * edges[:, -1:] > edges[:, :-1]).sum(axis=1)


def _near(mean: NDArray[np.float64] | float, spread: float, low: int, high: int, rng: Rng, rows: int) -> Codes:
    """Normal around ``mean``, rounded and kept in [low, high]."""
    return np.clip(np.rint(rng.normal(mean, spread, rows)), low, high).astype(np.int64)


def _homes(count: int, rng: Rng) -> Columns:
    """Households and what is drawn of their heads, before anyone's work and income."""
    region = rng.choice(8, count, p=[0.2, 0.18, 0.15, 0.12, 0.11, 0.1, 0.08, 0.06])
    urban = (rng.random(count) < 0.9 - 0.08 * region).astype(np.int64)
    kinds = np.tile([0.12, 0.48, 0.25, 0.15], (count, 1))
    kinds += np.outer(urban, [0.08, 0, 0, 0.10]) + np.outer(region, [0, 0, 0.03, 0])
    kind = _drawn(kinds, rng)
    ages = [
        rng.integers(3, 6, count), _near(8, 2, 4, 13, rng, count),
        rng.integers(13, 18, count), _near(7, 2, 4, 12, rng, count),
    ]  # fmt: skip
    race = _drawn(_RACES[region % 4], rng)
    schooling = 3.2 + 0.8 * urban + 1.5 * (kind == _SINGLE) - 0.8 * (kind == _PENSIONERS) - 0.5 * (race == 1)
    return {
        "region": region,
        "urban": urban,
        "kind": kind,
        "age": np.choose(kind, ages),
        "race": race,
        "edu": _near(schooling, 1.6, 0, 7, rng, count),
        "sex": (rng.random(count) < 0.45 + 0.12 * (kind == _PENSIONERS)).astype(np.int64),
    }


def _grown(size: Codes, growing: NDArray[np.bool_], persons: int, rng: Rng) -> Codes:
    """Sizes with one person more in households drawn from the growing ones, until there are as many as asked for."""
    size = size.copy()
    while (missing := persons - int(size.sum())) > 0:
        room = np.flatnonzero(growing & (size < LARGEST))
        size[rng.permutation(room)[:missing]] += 1
    return size


def _population(homes: Columns, size: Codes, rng: Rng) -> Population:
    home = np.repeat(np.arange(len(size)), size)
    person = _persons(homes, size, home, rng)
    income = np.bincount(home, person["income"], len(size)).astype(np.int64)
    household = _dwellings(homes, size, np.minimum(income // 2, 11), rng)
    return Population(household, person, home, HOUSEHOLD | PERSON | MORE_HOUSEHOLD | MORE_PERSON)


def _persons(homes: Columns, size: Codes, home: Codes, rng: Rng) -> Columns:
    """Everyone, by their part in the household: head, spouse, child, flatmate or another relative."""
    rows = len(home)
    rank = np.arange(rows) - np.repeat(np.cumsum(size) - size, size)
    head = {name: values[home] for name, values in homes.items()}
    kind = head["kind"]
    often = np.select([homes["kind"] == _FAMILY, homes["kind"] == _PENSIONERS], [0.8, 0.9], 0.0)
    married = ((size >= 2) & (rng.random(len(size)) < often))[home]
    relation = np.select(
        [rank == 0, (rank == 1) & married, (kind == _FAMILY) & (head["age"] >= 5), kind == _STUDENTS],
        [_HEAD, _SPOUSE, _CHILD, _MATE],
        _RELATIVE,
    )
    age = np.choose(
        relation,
        [
            head["age"],
            np.clip(head["age"] + rng.integers(-2, 3, rows), 3, 17),
            np.maximum(0, head["age"] - rng.integers(4, 9, rows)),
            rng.integers(3, 17, rows),
            np.clip(head["age"] + rng.integers(-1, 2, rows), 3, 6),
        ],
    )
    either = (rng.random(rows) < 0.5).astype(np.int64)
    sex = np.choose(relation, [head["sex"], head["sex"] ^ (rng.random(rows) < 0.96), either, either, either])
    own = np.clip(head["edu"] + rng.integers(-2, 3, rows), 0, 7)
    edu = np.choose(
        relation,
        [
            head["edu"],
            np.clip(head["edu"] + rng.integers(-1, 2, rows), 0, 7),
            np.where(age < 4, age, own),
            np.clip(rng.normal(3, 1.7, rows), 0, 7).astype(np.int64),
            np.clip(rng.normal(4, 1, rows), 0, 7).astype(np.int64),
        ],
    )
    race = np.where((rank == 0) | (rng.random(rows) < 0.92), head["race"], rng.integers(5, size=rows))
    divorced = np.where((head["age"] > 8) & (rng.random(rows) < 0.5), 2, 0)
    alone = np.where(married, 1, np.where(kind == _PENSIONERS, 3, divorced))
    none = np.zeros(rows, np.int64)
    marital = np.choose(relation, [alone, none + 1, none, rng.choice([0, 2, 3], rows), none])
    work = _work(age, edu, kind, rng)
    income = _incomes(age, edu, work, rng)
    return {
        "rel": relation, "age": age, "sex": sex, "race": race, "edu": edu, "emp": work, "marital": marital,
        "income": income,
    }  # fmt: skip


def _work(age: Codes, edu: Codes, kind: Codes, rng: Rng) -> Codes:
    """0 works, 1 looks for work, 2 neither, 3 at school."""
    rows = len(age)
    draw = rng.random(rows)
    usual = np.select([draw < 0.68 + 0.035 * edu, draw < 0.75 + 0.03 * edu], [0, 1], 2)
    studies = (kind == _STUDENTS) & (rng.random(rows) < 0.5)
    retired = np.where(rng.random(rows) < 0.88, 2, 0)
    return np.select([age <= 2, age >= 13, studies], [3, retired, 3], usual)


def _incomes(age: Codes, edu: Codes, work: Codes, rng: Rng) -> Codes:
    mean = np.choose(work, [3.0 + 0.75 * edu + 0.25 * np.minimum(age - 4, 6), 1.0, 1.5 + 0.35 * edu, 0.6])
    return np.where(age <= 2, 0, _near(mean, 1.1, 0, 11, rng, len(age)))


def _dwellings(homes: Columns, size: Codes, income: Codes, rng: Rng) -> Columns:
    """The households' attributes, which follow from who lives there."""
    rows, urban, kind = len(size), homes["urban"], homes["kind"]
    owns = 1 / (1 + np.exp(2.2 - 0.32 * income - 0.12 * homes["age"] + urban))
    rents = rng.random(rows) > owns
    tenure = np.where(rents, np.where(rng.random(rows) < 0.12, 2, 1), 0)
    return {
        "region": homes["region"],
        "urban": urban,
        "tenure": tenure,
        "htype": np.where((kind == _FAMILY) & (size > 4), 4, kind),
        "rooms": _near(2 + 0.7 * size + 0.2 * income - 0.9 * urban - 0.8 * (tenure == 1), 1.0, 0, 8, rng, rows),
        "vehicles": _near(0.3 + 0.15 * income + 0.25 * np.minimum(size, 4) - 0.7 * urban, 0.7, 0, 4, rng, rows),
        "hincome": income,
    }


def _furnish(whole: Population, rng: Rng) -> None:
    """Further attributes of households."""
    home = whole.household
    rows = len(home["region"])
    home["built"] = _near(3.0 + 0.4 * home["region"] + home["urban"] + 0.2 * home["rooms"], 1.8, 0, 9, rng, rows)
    home["fuel"] = np.where(rng.random(rows) < 0.7, (home["region"] + home["urban"]) % 5, rng.integers(5, size=rows))
    home["internet"] = _near(1.2 + 0.2 * home["hincome"] - 0.8 * (home["htype"] == _PENSIONERS), 0.9, 0, 4, rng, rows)


def _describe(whole: Population, rng: Rng) -> None:
    """Further attributes of persons; origin and language run in households, the rest in persons."""
    person, home, rows = whole.person, whole.home, len(whole.home)
    age, edu, works = person["age"], person["edu"], person["emp"] == 0
    grown = age >= 3

    def chance(probability: NDArray[np.float64]) -> Codes:
        return (rng.random(rows) < probability).astype(np.int64)

    def shared(size: int, shares: list[float], loyal: float) -> Codes:
        """The household's common value, drawn from ``shares``, or one of the person's own."""
        common = rng.choice(size, len(whole.household["region"]), p=shares)[home]
        return np.where(rng.random(rows) < loyal, common, rng.choice(size, rows, p=shares))

    origin = shared(9, [0.45, 0.13, 0.1, 0.08, 0.07, 0.06, 0.05, 0.04, 0.02], 0.85)
    person["birthplace"] = np.where((person["rel"] == _CHILD) & (rng.random(rows) < 0.7), 0, origin)
    ranks = np.clip(edu - 1 + rng.integers(-1, 2, rows), 0, 5)
    person["occupation"] = np.where(works, ranks + 1, 0)
    person["language"] = np.where(rng.random(rows) < 0.9, np.minimum(origin // 2, 2), rng.integers(3, size=rows))
    fluent = np.where(person["language"] == 0, 2.0, 1.0 + 0.1 * edu - 0.05 * age)
    person["english"] = _near(fluent, 0.5, 0, 2, rng, rows)
    person["hispanic"] = shared(3, [0.62, 0.28, 0.1], 0.9)
    by_car = rng.random(rows) < 0.9 - 0.35 * whole.household["urban"][home]
    person["commute"] = np.where(works, np.where(by_car, 1, 2), 0)
    person["hours"] = np.where(works, 1 + chance(0.3 + 0.05 * person["income"]), 0)
    person["citizen"] = chance(np.where(person["birthplace"] < 2, 0.97, 0.45))
    person["veteran"] = chance(np.where(grown, 0.01 * age * (1 - 0.8 * person["sex"]), 0.0))
    person["school"] = chance(np.where((person["emp"] == 3) | ~grown, 0.95, 0.05))
    person["disabled"] = chance(np.clip(0.02 + 0.02 * np.maximum(age - 8, 0), 0, 1))
    person["insured"] = np.where(
        rng.random(rows) < 0.8, shared(2, [0.12, 0.88], 0.9), chance(np.where(works, 0.95, 0.8))
    )
    person["moved"] = shared(2, [0.85, 0.15], 0.95)
    person["licence"] = chance(np.where(grown, 0.9 - 0.1 * (age > 14), 0.0))
    person["benefits"] = chance(np.where(works | ~grown, 0.02, 0.3))
