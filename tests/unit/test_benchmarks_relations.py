"""The populations of the benchmarks are what their module says, and so are workloads and baselines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.population import LARGEST, Population, california, households
from benchmarks.relations import Pair


@pytest.fixture(scope="module")
def planted() -> Population:
    return households(4000)


@pytest.fixture(scope="module")
def pair(planted: Population, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair.of(planted.save(tmp_path_factory.mktemp("planted"), "planted"))


def _head(population: Population) -> np.ndarray:
    """The row of each person's head."""
    return np.searchsorted(population.home, population.home)


def test_members_take_after_the_head(planted: Population) -> None:
    person, head = planted.person, _head(planted)
    others = np.arange(len(head)) != head
    alike = (person["race"] == person["race"][head])[others].mean()
    assert alike == pytest.approx(0.92 + 0.08 / 5, abs=0.02)
    spouse = person["rel"] == 1
    assert (person["sex"] != person["sex"][head])[spouse].mean() == pytest.approx(0.96, abs=0.02)
    gap = (person["age"][head] - person["age"])[person["rel"] == 2]
    assert gap.max() <= 8
    assert gap.mean() > 4


def test_household_income_is_the_sum_of_the_persons(planted: Population) -> None:
    total = np.bincount(planted.home, planted.person["income"])
    np.testing.assert_array_equal(planted.household["hincome"], np.minimum(total // 2, 11))


def test_california_has_exactly_as_many_rows_as_asked_for_and_all_attributes() -> None:
    made = california(500, 1372)
    assert (len(made.household), len(made.person)) == (10, 23)
    assert (len(made.household["region"]), len(made.home)) == (500, 1372)
    assert np.bincount(made.home).max() <= LARGEST
    for name, values in {**made.household, **made.person}.items():
        assert values.min() >= 0, name
        assert values.max() < made.domains[name], name


def test_california_has_the_domains_of_the_paper() -> None:
    made = california(10, 27)
    of_household, of_person = (np.prod([float(made.domains[n]) for n in t]) for t in (made.household, made.person))
    assert of_household == pytest.approx(3.24e7, rel=0.005)
    assert of_person == pytest.approx(6.77e12, rel=0.005)


def test_a_population_is_determined_by_its_seed() -> None:
    first, again, other = (households(300, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.person["income"], again.person["income"])
    assert not np.array_equal(first.household["region"], other.household["region"])


def test_queries_admit_codes_of_the_declared_domain_alone(pair: Pair, planted: Population) -> None:
    names = pair.coded["person"].names
    for queries in pair.queries.values():
        for query in queries[:200]:
            for column, admitted in query.children[0]:
                assert len(admitted) == pair.coded["person"].sizes[column]
                assert not admitted[planted.domains[names[column]] :].any()
                assert admitted.any()


def test_random_links_keep_rows_and_sizes_of_groups(pair: Pair) -> None:
    true = pair.join.linked
    allocated = {name: join.linked for name, join in pair.join.with_shuffled_links(0).items()}
    np.testing.assert_array_equal(allocated["random link, sizes kept"].fanout, true.fanout)
    np.testing.assert_array_equal(np.sort(allocated["random link"].fanout), np.sort(true.fanout))
    assert not np.array_equal(allocated["random link"].fanout, true.fanout)


def test_the_source_has_no_error_and_a_random_link_has(pair: Pair) -> None:
    itself = pair.score_join(pair.join)
    assert max(itself.values()) == pytest.approx(0, abs=1e-12)
    linked = pair.score_join(pair.join.with_shuffled_links(0)["random link"])
    assert linked["counting error, c2 k1"] > 0.2
    assert linked["Pearson, siblings"] > 0.1
    assert linked["fanout TVD"] == 0


def test_a_saved_population_is_read_back(planted: Population, tmp_path: Path) -> None:
    spec = planted.save(tmp_path, "again")
    assert spec.delta == 1 / len(planted.home)
    assert {path.name for path in tmp_path.iterdir()} == {"again.yaml", "household.parquet", "person.parquet"}
