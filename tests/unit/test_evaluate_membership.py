"""Attacks, nearest records and traces: they must find what is planted, and nothing where there is nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.evaluation import DatabasePair
from privbench_core.evaluation.attacks import (
    Rehearsal,
    RunOnRows,
    attribute_risks,
    epsilon_bound,
    nearest_records,
    rehearse_half,
    restrict_to_units,
    risk_of,
    run_attacks,
    score_attack,
)
from privbench_core.evaluation.marginals import EncodedTable, Figures, encode_tables
from privbench_core.evaluation.privacy_figures import find_traces
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.databases import forum, shop
from tests.helpers.planted import integer, owner_key

CODE, OF_PERSON = Column("code", ColumnType.CATEGORY), Column("person", ColumnType.CATEGORY)
PERSON_KEY = ForeignKey("entry", ("person",), "person", ("code",), max_children=3, owner=True)
NOTES = Schema(
    "notes",
    (
        Table("person", (CODE, integer("x", 0, 199), integer("y", 0, 199), Column("note", ColumnType.TEXT)), ("code",)),
        Table("entry", (integer("id"), OF_PERSON, integer("z", 0, 9)), ("id",), (PERSON_KEY,)),
    ),
    "person",
)


def rows(seed: int, people: int = 1200, *, prefix: str = "person") -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    codes = [f"{prefix}-{seed}-{i:06d}" for i in range(people)]
    owner = np.repeat(np.arange(people), 2)
    person = {
        "code": codes,
        "x": rng.integers(0, 200, people),
        "y": rng.integers(0, 200, people),
        "note": [f"{prefix} note {seed} {i:06d}" for i in range(people)],
    }
    entry = {"id": np.arange(len(owner)), "person": [codes[i] for i in owner], "z": rng.integers(0, 10, len(owner))}
    return {"person": pa.table(person), "entry": pa.table(entry)}


def copying(tables: Mapping[str, pa.Table]) -> Mapping[str, pa.Table]:
    """A synthesizer that gives its input away."""
    return tables


def attacked(source: Mapping[str, pa.Table], rehearse: RunOnRows, schema: Schema = NOTES) -> list[Figures]:
    rng = np.random.default_rng(0)
    return run_attacks(rehearsed(source, rehearse, schema), rng)


def rehearsed(source: Mapping[str, pa.Table], rehearse: RunOnRows, schema: Schema = NOTES) -> Rehearsal:
    found = rehearse_half(schema, source, rehearse, np.random.default_rng(0))
    assert found is not None
    return found


def test_a_synthesizer_that_copies_is_caught_by_those_who_know_units() -> None:
    found = attacked(rows(0), copying)
    assert [attack["name"] for attack in found] == [
        "marginals, all rows of a unit", "nearest synthetic record", "marginals, one row of entry",
    ]  # fmt: skip
    for attack in found[:2]:
        assert attack["auc"] > 0.9, attack["name"]
        assert attack["right"] > 0.9 * attack["guesses"], attack["name"]
        assert attack["epsilon"] > 2, attack["name"]


def test_a_synthesizer_that_looks_at_nothing_gives_nothing_away() -> None:
    for found in attacked(rows(0), lambda _: rows(99)):
        assert abs(found["auc"] - 0.5) < 0.06, found["name"]
        assert found["epsilon"] < 0.3, found["name"]


TOPIC = Column("topic", ColumnType.CATEGORY, Values(tuple("abcdefghijklmnopqrst")))
LETTER = (integer("id"), integer("person"), integer("x", 0, 99), integer("y", 0, 99), TOPIC)
LETTERS = Schema(
    "letters",
    (
        Table("person", (integer("id"), integer("sex", 0, 1)), ("id",)),
        Table("letter", LETTER, ("id",), (owner_key("letter", "person", "person", 12),)),
    ),
    "person",
)


def letters(seed: int, people: int = 600, each: int = 12) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    person = {"id": np.arange(people), "sex": rng.integers(0, 2, people)}
    letter = {"id": np.arange(people * each), "person": np.repeat(np.arange(people), each)}
    letter |= {name: rng.integers(0, 100, people * each) for name in "xy"}
    letter["topic"] = rng.choice(list("abcdefghijklmnopqrst"), people * each)
    return {"person": pa.table(person), "letter": pa.table(letter)}


def test_attacks_on_single_rows_understate_what_is_said_about_units() -> None:
    """A synthesizer that keeps every third row: about one row it says little, about a person with twelve nearly all."""

    def keep_some(tables: Mapping[str, pa.Table]) -> Mapping[str, pa.Table]:
        letter, others = tables["letter"], letters(9)["letter"].slice(0, tables["letter"].num_rows)
        kept = np.random.default_rng(5).random(letter.num_rows) < 0.3
        mixed = {n: np.where(kept, letter[n].to_numpy(), others[n].to_numpy()) for n in letter.column_names}
        return {"person": letters(9)["person"], "letter": pa.table(mixed)}

    by_name = {attack["name"]: attack for attack in attacked(letters(0), keep_some, LETTERS)}
    unit, item = by_name["marginals, all rows of a unit"], by_name["marginals, one row of letter"]
    assert unit["units"] == item["units"] == 600
    assert item["auc"] < 0.7
    assert unit["auc"] > 0.8
    assert unit["epsilon"] > item["epsilon"] + 0.5


def risks(source: Mapping[str, pa.Table], rehearse: RunOnRows) -> dict[tuple[str, str], Figures]:
    rng = np.random.default_rng(1)
    return {(r["table"], r["name"]): r for r in attribute_risks(rehearsed(source, rehearse, LETTERS), rng)}


def test_a_synthesizer_that_copies_lets_rows_be_singled_out_linked_and_inferred() -> None:
    found = risks(letters(0), copying)
    assert set(found) == {("letter", "singling out"), ("letter", "linkability"), ("letter", "inference")}
    for risk in found.values():
        assert risk["members"] - risk["others"] > risk["error"], risk
    assert found["letter", "inference"]["members"] > 0.5
    assert found["letter", "singling out"]["members"] == 1
    assert found["letter", "singling out"]["risk"] == 1


def test_what_follows_from_the_population_is_no_risk() -> None:
    source = letters(0)
    tied = source["letter"].set_column(3, "y", source["letter"]["x"])  # y follows from x for everybody
    other = letters(9)["letter"]
    made = {"person": source["person"], "letter": other.set_column(3, "y", other["x"])}
    found = risks({**source, "letter": tied}, lambda _: made)
    assert found["letter", "inference"]["others"] > 0.6  # x and y, not the topic
    for risk in found.values():
        assert risk["members"] - risk["others"] <= 2 * risk["error"], risk
        assert risk["risk"] <= 1
    assert risk_of("inference", "t", np.ones(10, bool), np.ones(10, bool))["risk"] == 0


def test_the_rehearsal_is_given_half_of_the_units_with_all_that_depends_on_them() -> None:
    source = rows(0)
    seen: list[Mapping[str, pa.Table]] = []

    def rehearse(tables: Mapping[str, pa.Table]) -> Mapping[str, pa.Table]:
        seen.append(tables)
        return tables

    rehearsed(source, rehearse)
    people = set(seen[0]["person"]["code"].to_pylist())
    assert 500 < len(people) < 700
    expected = [owner for owner in source["entry"]["person"].to_pylist() if owner in people]
    assert seen[0]["entry"]["person"].to_pylist() == expected


def test_one_unit_cannot_be_halved() -> None:
    assert rehearse_half(NOTES, rows(0, people=1), copying, np.random.default_rng(0)) is None


def test_a_restricted_database_is_the_neighbour_of_the_tests() -> None:
    for database in (shop(3), forum(3)):
        unit = database.units()[4]
        expected = database.without(unit).tables
        found = restrict_to_units(database.schema, database.tables, np.delete(np.arange(len(database.units())), 4))
        assert {name: t.num_rows for name, t in found.items()} == {name: t.num_rows for name, t in expected.items()}


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_bound_on_epsilon_holds_for_randomised_response(epsilon: float) -> None:
    rng = np.random.default_rng(4)
    too_high = 0
    for _ in range(200):
        member = rng.random(1000) < 0.5
        guessed = np.where(rng.random(1000) < np.exp(epsilon) / (1 + np.exp(epsilon)), member, ~member)
        too_high += score_attack("r", guessed + 0.0, member, 0.05, rng)["epsilon"] > epsilon
    assert too_high <= 20  # 10 are expected at most
    assert score_attack("r", guessed + 0.0, member, 0.05, rng)["epsilon"] > 0.5 * epsilon


def test_the_area_under_the_curve_and_the_catch() -> None:
    member = np.repeat([True, False], 500)
    rng = np.random.default_rng(0)
    perfect = score_attack("p", member + 0.0, member, 0.05, rng)
    assert (perfect["auc"], perfect["caught"], perfect["right"]) == (1, 1, 500)
    reversed_ = score_attack("r", -member.astype(float), member, 0.05, rng)
    assert (reversed_["auc"], reversed_["caught"], reversed_["epsilon"]) == (0, 0, 0)
    assert epsilon_bound(0, 0, 0.05) == 0


def test_copies_are_nearer_to_the_source_than_it_is_to_itself() -> None:
    source, other = rows(0, people=3000), rows(5, people=3000)
    true = encode_tables(NOTES, source)["person"]
    copied = nearest_records(true, true, np.random.default_rng(0))
    fresh = nearest_records(true, encode_tables(NOTES, other, source)["person"], np.random.default_rng(0))
    assert copied is not None
    assert fresh is not None
    assert copied["suspicious"]
    assert copied["synthetic_same"] > 0.4  # the half that they are looked up in
    assert not fresh["suspicious"]
    assert fresh["synthetic"][1] == pytest.approx(fresh["source"][1], rel=0.3)
    assert (
        nearest_records(
            true, EncodedTable(true.names, true.codes[:0], true.sizes, true.ordered), np.random.default_rng(0)
        )
        is None
    )


def test_a_bundle_without_details_is_no_copy() -> None:
    """All of its rows are among the most frequent ones of a table of few columns."""
    codes = np.random.default_rng(0).geometric(0.1, (3000, 2))
    source = EncodedTable(("a", "b"), codes, (200, 200), (True, True))
    common = replace(source, codes=codes[(codes < 5).all(axis=1)])
    found = nearest_records(source, common, np.random.default_rng(0))
    assert found is not None
    assert not found["suspicious"]


def found_traces(source: dict[str, pa.Table], bundle: dict[str, pa.Table], papers: str = "") -> dict[str, bool]:
    pair, rng = DatabasePair(NOTES, source, bundle), np.random.default_rng(0)
    return {t["where"]: t["suspicious"] for t in find_traces(pair, {"README.md": papers}, rng)}


def test_nothing_is_found_in_an_honest_bundle() -> None:
    found = found_traces(rows(0), rows(7, prefix="other"))
    assert set(found) == {"person.code", "person.note", "entry.person", "entry.id", "README.md"}
    assert not any(found.values())


def test_a_copied_text_is_found_wherever_it_stands() -> None:
    source, bundle = rows(0), rows(7)
    notes = [*bundle["person"]["note"].to_pylist()[1:], source["person"]["note"][3].as_py()]
    leaked = bundle | {"person": bundle["person"].set_column(3, "note", pa.array(notes))}
    assert [where for where, bad in found_traces(source, leaked).items() if bad] == ["person.note"]
    words = f"As in {source['person']['code'][5].as_py()}, for example."
    assert [where for where, bad in found_traces(source, bundle, words).items() if bad] == ["README.md"]


def test_rows_that_keep_their_keys_are_found_although_numbers_coincide() -> None:
    source, bundle = rows(0), rows(7, prefix="other")
    z = source["entry"]["z"]
    leaked = bundle | {"entry": bundle["entry"].set_column(2, "z", z)}
    assert [where for where, bad in found_traces(source, leaked).items() if bad] == ["entry.id"]


def test_a_copy_is_found_where_keys_number_rows_in_their_order_and_that_order_is_no_copy() -> None:
    """Rows with equal keys have nearly the same date, and all that follows from it; only a copy has the whole row."""
    columns = tuple(Column(name, ColumnType.INTEGER, Range(0, 999)) for name in ("day", "until", "sum"))
    rental = Schema("r", (Table("rental", (integer("id"), *columns), ("id",), row_order="day"),), "rental")

    def rentals(seed: int) -> dict[str, pa.Table]:
        rng = np.random.default_rng(seed)
        day = np.sort(rng.integers(0, 990, 5_000))
        until = day + rng.integers(1, 9, len(day))
        return {
            "rental": pa.table({"id": np.arange(5_000) + 1, "day": day, "until": until, "sum": day // 2 + until % 7})
        }

    source = rentals(0)
    for bundle, copied in ((rentals(1), False), (source, True)):
        traces = find_traces(DatabasePair(rental, source, bundle), {}, np.random.default_rng(0))
        assert {trace["where"]: trace["suspicious"] for trace in traces} == {"rental.id": copied}
