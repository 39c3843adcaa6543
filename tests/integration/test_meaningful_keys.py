"""Key columns that hold a meaning, such as the season in (player, season, stint): modelled, and keys stay unique."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.sampling.references import room_for_children
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import (
    broken_expectations,
    category,
    draw_exactly,
    integer,
    owner_key,
    place_of,
    rows_of,
    samples_of,
    texts,
    tvd,
)

Tables = dict[str, pa.Table]
SEASONS = 12


def league(players: int = 800, seed: int = 0, *, domain: bool = True) -> tuple[Schema, Tables]:
    """Players, their seasons by team (a few changed it: stint 2), and one award for each season they played.

    Later seasons are far commoner, so that those with long careers have rare ones as well; two were cut short by
    strikes, and awards became of another kind halfway.
    """
    season = Range(1990, 1989 + SEASONS) if domain else None
    player = Table("player", (integer("id"), category("bats", 3)), ("id",))
    stint = Table(
        "stint",
        (integer("player"), replace(integer("season"), domain=season), integer("no"), category("games", 3)),
        ("player", "season", "no"),
        (owner_key("stint", "player", "player", SEASONS + 4),),
    )
    award = Table(
        "award",
        (integer("player"), replace(integer("season"), domain=season), category("kind", 2)),
        ("player", "season"),
        (owner_key("award", "player", "player", SEASONS),),
    )
    rng = np.random.default_rng(seed)
    shares = np.geomspace(1, 50, SEASONS) / np.geomspace(1, 50, SEASONS).sum()
    stints, awards = [], []
    for p in range(players):
        career = rng.choice(SEASONS, rng.integers(1, SEASONS + 1), replace=False, p=shares)
        for s in career:
            numbers = range(1, 2 + int(rng.random() < 0.1))
            stints += [(p, 1990 + int(s), no, 0 if s in (4, 5) else int(rng.integers(1, 3))) for no in numbers]
            awards.append((p, 1990 + int(s), int(s >= SEASONS // 2)))
    tables = {
        "player": rows_of(player, id=np.arange(players), bats=texts(rng.integers(0, 3, players))),
        "stint": rows_of(
            stint,
            player=[row[0] for row in stints],
            season=[row[1] for row in stints],
            no=[row[2] for row in stints],
            games=texts(np.array([row[3] for row in stints])),
        ),
        "award": rows_of(
            award,
            player=[row[0] for row in awards],
            season=[row[1] for row in awards],
            kind=texts(np.array([row[2] for row in awards])),
        ),
    }
    return Schema("league", (player, stint, award), "player"), tables


def shares_of(rows: pa.Table) -> np.ndarray:
    """Share of each season."""
    return np.bincount(rows.column("season").to_numpy() - 1990, minlength=SEASONS)[:SEASONS] / rows.num_rows


def repetitions(schema: Schema, made: Tables) -> dict[str, int]:
    """How many rows repeat a primary key, by table."""
    distinct = {t.name: made[t.name].group_by(list(t.primary_key)).aggregate([]).num_rows for t in schema.tables}
    return {name: made[name].num_rows - number for name, number in distinct.items()}


@pytest.fixture(scope="module")
def drawn() -> tuple[Schema, Tables, Tables]:
    schema, tables = league()
    return schema, tables, {name: sample.table for name, sample in draw_exactly(schema, tables).items()}


def test_keys_are_unique_and_no_row_is_lost_for_it(drawn: tuple[Schema, Tables, Tables]) -> None:
    """A player with most of the seasons must get different ones; drawing them again would not find the last."""
    schema, source, made = drawn
    assert {name: sample.dropped for name, sample in draw_exactly(schema, source).items() if sample.dropped} == {}
    assert repetitions(schema, made) == {"player": 0, "stint": 0, "award": 0}
    for name in ("stint", "award"):
        assert made[name].num_rows == pytest.approx(source[name].num_rows, rel=0.03)


def test_a_key_column_with_a_domain_keeps_its_distribution_and_its_ties(drawn: tuple[Schema, Tables, Tables]) -> None:
    _, source, made = drawn
    for name in ("stint", "award"):
        assert set(made[name].column("season").to_pylist()) <= set(range(1990, 1990 + SEASONS))
        assert tvd(shares_of(source[name]), shares_of(made[name])) < 0.06
    seasons, games = (np.array(made["stint"].column(name).to_pylist()) for name in ("season", "games"))
    strike = np.isin(seasons, (1994, 1995))
    assert np.mean(games[strike] == "v0") > 0.85
    assert np.mean(games[~strike] == "v0") < 0.05
    seasons, kinds = (np.array(made["award"].column(name).to_pylist()) for name in ("season", "kind"))
    assert np.mean((seasons >= 1990 + SEASONS // 2) == (kinds == "v1")) > 0.9


def test_the_number_beside_it_counts_within_it(drawn: tuple[Schema, Tables, Tables]) -> None:
    _, _, made = drawn
    groups = made["stint"].group_by(["player", "season"]).aggregate([("no", "max"), ("no", "count")])
    assert groups.column("no_max").to_pylist() == groups.column("no_count").to_pylist()


def test_without_a_domain_the_column_is_made_anew() -> None:
    schema, tables = league(100, domain=False)
    assert [column.name for column in schema.table("stint").attributes] == ["games"]
    made = {name: sample.table for name, sample in draw_exactly(schema, tables).items()}
    assert repetitions(schema, made) == {"player": 0, "stint": 0, "award": 0}
    assert min(made["award"].column("season").to_pylist()) == 1


@pytest.mark.parametrize("synthesizer", ["privbench", "privpetal", "privlava"])
def test_a_whole_run_with_noise(synthesizer: str, tmp_path: Path) -> None:
    schema, tables = league(300)
    result = place_of(tmp_path, schema, tables, synthesizer=synthesizer).run_with(SeededNoise(0), 3.2)
    made = samples_of(result)
    assert repetitions(schema, made) == {"player": 0, "stint": 0, "award": 0}
    assert broken_expectations(result) == []
    assert tvd(shares_of(tables["stint"]), shares_of(made["stint"])) < 0.2


def clinic(patients: int = 400, seed: int = 0) -> tuple[Schema, Tables]:
    """Drugs of patients, each once (most have nearly all of them), how they were taken, and a log."""
    names = tuple(f"v{number}" for number in range(6))
    patient = Table("patient", (integer("id"), category("sex", 2)), ("id",))
    drug = Table(
        "drug",
        (integer("patient"), Column("name", ColumnType.CATEGORY, Values(names)), category("kind", 2)),
        ("patient", "name"),
        (owner_key("drug", "patient", "patient", 6),),
    )
    reference = ForeignKey("taken", ("patient", "name"), "drug", ("patient", "name"), max_children=5, owner=True)
    taken = Table(
        "taken",
        (integer("patient"), Column("name", ColumnType.TEXT), integer("no"), category("how", 2)),
        ("patient", "name", "no"),
        (reference,),
    )
    log = Table(
        "log",
        (integer("id"), integer("day", 1, 30), integer("patient")),
        ("id", "day"),
        (owner_key("log", "patient", "patient", 20),),
    )
    rng = np.random.default_rng(seed)
    drugs = [
        (p, int(d)) for p in range(patients) for d in rng.permutation(6)[: rng.choice([1, 5, 6], p=[0.1, 0.3, 0.6])]
    ]
    doses = [(p, d, no) for p, d in drugs for no in range(1, 1 + int(rng.integers(0, 3)))]
    logged = np.repeat(np.arange(patients), rng.integers(0, 10, patients))
    tables = {
        "patient": rows_of(patient, id=np.arange(patients), sex=texts(rng.integers(0, 2, patients))),
        "drug": rows_of(
            drug,
            patient=[p for p, _ in drugs],
            name=[names[d] for _, d in drugs],
            kind=texts(np.array([d % 2 for _, d in drugs])),
        ),
        "taken": rows_of(
            taken,
            patient=[p for p, _, _ in doses],
            name=[names[d] for _, d, _ in doses],
            no=[no for _, _, no in doses],
            how=texts(np.array([int(d == 3) for _, d, _ in doses])),
        ),
        "log": rows_of(log, id=np.arange(len(logged)), day=rng.integers(1, 31, len(logged)), patient=logged),
    }
    return Schema("clinic", (patient, drug, taken, log), "patient"), tables


def test_rows_copy_the_meaning_in_the_key_of_what_they_refer_to(tmp_path: Path) -> None:
    schema, tables = clinic()
    result = place_of(tmp_path, schema, tables).run_with(SeededNoise(1), 10_000.0)
    made = samples_of(result)
    assert broken_expectations(result) == []
    names, kinds = (np.array(made["drug"].column(name).to_pylist()) for name in ("name", "kind"))
    assert np.mean((np.char.lstrip(names, "v").astype(int) % 2 == 1) == (kinds == "v1")) > 0.95
    names, how = (np.array(made["taken"].column(name).to_pylist()) for name in ("name", "how"))
    assert np.mean((names == "v3") == (how == "v1")) > 0.9


def test_an_id_beside_the_time_of_a_partition_numbers_all_rows(tmp_path: Path) -> None:
    schema, tables = clinic()
    made = place_of(tmp_path, schema, tables).drawn_with(SeededNoise(1), 3.2)["log"]
    assert sorted(made.column("id").to_pylist()) == list(range(1, made.num_rows + 1))


def test_an_owner_has_no_more_rows_than_there_are_values_of_the_key() -> None:
    """Of eight rows with another day of the week each, one would have to go."""
    schema, tables = clinic(3)
    owners, distinct = tables["patient"], {"name": 6.0, "kind": 2.0}
    drug = replace(schema.table("drug"), foreign_keys=(owner_key("drug", "patient", "patient", 100),))
    assert room_for_children(drug, owners, distinct, {}).tolist() == [6, 6, 6]
    twice = replace(drug, unique=(("patient", "kind"),))
    assert room_for_children(twice, owners, distinct, {}).tolist() == [2, 2, 2]
    assert room_for_children(drug, owners, distinct | {"name": np.inf}, {}).tolist() == [100, 100, 100]
    assert room_for_children(schema.table("log"), owners, {"day": 30.0}, {}).tolist() == [20, 20, 20]


def test_an_owner_has_no_more_rows_than_its_unit_has_rows_to_refer_to() -> None:
    """Members of a team are different users of its account: without users, it has none."""
    columns = (integer("team"), integer("user"), category("role", 2))
    keys = (owner_key("member", "team", "team", 100), ForeignKey("member", ("user",), "users", ("id",), same_unit=True))
    teams, users = pa.table({"id": [1, 2, 3]}), {"member.user": np.array([5, 0, 9])}
    member = Table("member", columns, ("team", "user"), keys)
    assert room_for_children(member, teams, {"role": 2.0}, users).tolist() == [5, 0, 9]
    again = Table("member", columns, ("team", "user", "role"), keys)
    assert room_for_children(again, teams, {"role": 2.0}, users).tolist() == [10, 0, 18]
    alone = Table("member", (integer("id"), *columns), ("id",), keys)
    assert room_for_children(alone, teams, {"role": 2.0}, users).tolist() == [100, 0, 100]
