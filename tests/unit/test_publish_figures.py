"""Figures are given with their noise, and never as 0 where there is nothing but noise; verdicts weigh that noise."""

from __future__ import annotations

from typing import Any

import pytest

from privbench_core.publishing.figures import (
    FidelityFigure,
    Grade,
    blocking,
    fidelity_table,
    judge_table,
    warnings_of,
)
from privbench_core.spec.model import FidelityPolicy

WHERE = ("person", "join TVD")
PAIRS, COLUMNS = "two-way TVD", "one-way TVD"


def test_a_distance_is_a_share_of_the_largest_there_can_be():
    figure = FidelityFigure.of(WHERE, (30.0, 120.0), 1.0, 200.0)
    assert (figure.value, figure.shuffled, figure.noise) == (0.15, 0.6, 0.005)
    assert str(figure) == "0.150 ± 0.010, columns shuffled 0.600 ± 0.010"


@pytest.mark.parametrize("distance", [-50.0, -1.0, 0.0, 1.9])
def test_what_noise_could_have_made_is_an_upper_bound(distance: float):
    figure = FidelityFigure.of(WHERE, (distance, None), 1.0, 100.0)
    assert figure.receipt["value"] is None
    assert figure.receipt["at_most"] >= 0.02
    assert str(figure).startswith("at most 0.0")
    assert "0.000" not in str(figure)


def test_noise_beyond_all_bounds_says_at_most_one():
    figure = FidelityFigure.of(WHERE, (5000.0, -3.0), 1000.0, 100.0)
    assert str(figure) == "at most 1.000 (all noise), columns shuffled at most 1.000 (all noise)"


def test_figures_survive_being_stored():
    figure = FidelityFigure.of(WHERE, (30.0, None), 1.0, 200.0)
    assert FidelityFigure.from_dict(figure.to_dict() | {"limit": 0.3}) == figure


def test_a_table_of_the_manifests_figures():
    figure = FidelityFigure.of(WHERE, (30.0, 120.0), 1.0, 200.0)
    lines = fidelity_table({"person": [figure.receipt], "household": []})
    assert lines[2:] == ["| person | join TVD | 0.150 ± 0.010, columns shuffled 0.600 ± 0.010 |"]
    assert fidelity_table({"household": []}) == []


def validated(
    *figures: FidelityFigure,
    noise: str = "",
    made_up: dict[str, float] | None = None,
    at_bound: dict[str, float] | None = None,
    **guessed: str,
) -> dict[str, Any]:
    shown = [figure.to_dict() for figure in figures]
    shares = {"made_up": made_up or {}, "at_bound": at_bound or {}}
    return {"figures": shown, "noise": noise, "guessed": guessed, **shares}


@pytest.mark.parametrize(
    ("value", "shuffled", "noise", "grade"),
    [
        (0.15, 0.40, 0.01, Grade.GOOD),
        (0.05, 0.04, 0.01, Grade.GOOD),  # nothing depends on anything, and the model is close
        (0.40, 0.40, 0.01, Grade.FAR),
        (0.45, 0.40, 0.01, Grade.FAR),
        (0.37, 0.40, 0.02, Grade.FAR),  # closer, but not beyond its noise
        (0.30, 0.40, 0.30, Grade.UNKNOWN),
        (0.00, 0.00, 0.08, Grade.UNKNOWN),
    ],
)
def test_pairs_are_judged_by_shuffled_columns(value: float, shuffled: float, noise: float, grade: Grade) -> None:
    data = validated(FidelityFigure("t", PAIRS, value, noise, shuffled, noise))
    assert judge_table("t", data, FidelityPolicy()).grade is grade


@pytest.mark.parametrize(
    ("value", "noise", "grade"),
    [(0.1, 0.01, Grade.GOOD), (0.3, 0.01, Grade.FAR), (0.3, 0.04, Grade.GOOD), (0.3, 0.2, Grade.UNKNOWN)],
)
def test_columns_are_judged_by_their_limit_and_their_noise(value: float, noise: float, grade: Grade) -> None:
    assert judge_table("t", validated(FidelityFigure("t", COLUMNS, value, noise)), FidelityPolicy()).grade is grade


def test_shuffled_columns_that_noise_hides_are_no_reference() -> None:
    """.078, left of .31 ± .04 once columns that are .30 off are taken away, is ± .12."""
    figure = FidelityFigure("t", PAIRS, 0.1, 0.01, 0.31, 0.02).with_columns_off(0.3)
    assert judge_table("t", validated(figure), FidelityPolicy()).grade is Grade.UNKNOWN
    exact = FidelityFigure("t", PAIRS, 0.1, 0.01, 0.078, 0.01)
    assert judge_table("t", validated(exact), FidelityPolicy()).grade is Grade.FAR


def test_a_stricter_owner_asks_for_less_than_shuffled_columns() -> None:
    data = validated(FidelityFigure("t", PAIRS, 0.3, 0.001, 0.4, 0.001))
    assert judge_table("t", data, FidelityPolicy()).grade is Grade.GOOD
    strict = judge_table("t", data, FidelityPolicy(to_shuffled=0.5))
    assert strict.grade is Grade.FAR
    assert "than 0.5 times shuffled columns (0.300 ± 0.002, columns shuffled 0.400 ± 0.002)" in str(strict)


def test_warnings_name_noise_far_tables_and_guessed_domains_and_say_nothing_of_good_ones() -> None:
    tables = {
        "good": validated(FidelityFigure("good", COLUMNS, 0.01, 0.001)),
        "gone": validated(FidelityFigure("gone", COLUMNS, 0.0, 0.5), noise="3 ± 40 rows"),
        "far": validated(FidelityFigure("far", PAIRS, 0.4, 0.001, 0.4, 0.001), price="assumed 0 to 1,000"),
        "unknown": validated(FidelityFigure("unknown", COLUMNS, 0.1, 0.5)),
    }
    lines = warnings_of(tables, FidelityPolicy())
    assert [line.partition(":")[0] for line in lines] == ["gone", "far", "unknown", "far.price"]
    assert lines[0] == "gone: all noise at this ε (3 ± 40 rows); its rows say nothing"
    assert blocking(tables, FidelityPolicy()) == []
    assert [line.partition(":")[0] for line in blocking(tables, FidelityPolicy(block=True))] == ["gone", "far"]


def test_made_up_values_are_said_whatever_the_figures_say() -> None:
    """Figures count all values that were not named as one, so they see nothing of them."""
    made_up = {"id": 1.0, "city": 0.63, "country": 0.02, "sex": 0.002, "zip": 0.9}
    close = FidelityFigure("person", COLUMNS, 0.01, 0.001)
    lines = warnings_of({"person": validated(close, made_up=made_up, zip="noise hid all of it")}, FidelityPolicy())
    said = [line.partition(": ")[0] for line in lines]
    assert said == [f"person.{name}" for name in ("zip", "id", "city", "country")]
    assert "63% of its rows have made-up values" in lines[2]


def test_a_bound_that_cuts_many_rows_off_is_said() -> None:
    tables = {"flight": validated(at_bound={"tailnum": 0.8}), "visit": validated(at_bound={"pet": 0.03})}
    (line,) = warnings_of(tables, FidelityPolicy())
    assert line.startswith("flight.tailnum: about 80% of the rows belong to owners with as many as max_children")
