"""Figures are given with their noise, and never as 0 where there is nothing but noise; verdicts weigh that noise."""

from __future__ import annotations

from typing import Any

import pytest

from privbench_core.publishing.verdicts import (
    FidelityFigure,
    Grade,
    Verdict,
    blocking,
    judge_table,
    judge_tables,
    lost_in,
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
        (0.15, 0.40, 0.01, Grade.ROUGH),
        (0.05, 0.04, 0.01, Grade.CLOSE),  # nothing depends on anything, and the model is close
        (0.40, 0.40, 0.01, Grade.FAR),
        (0.45, 0.40, 0.01, Grade.FAR),
        (0.37, 0.40, 0.02, Grade.FAR),  # closer, but not beyond its noise
        (0.39, 0.40, 0.0, Grade.FAR),  # closer, but not by anything that matters
        (0.20, 0.05, 0.01, Grade.ROUGH),  # nothing depends on anything, so there is nothing to lose
        (0.30, 0.05, 0.01, Grade.FAR),
        (0.56, 0.00, 0.15, Grade.FAR),  # noise hides whether there is something to lose
        (0.30, 0.40, 0.30, Grade.UNKNOWN),
        (0.00, 0.00, 0.08, Grade.UNKNOWN),
    ],
)
def test_pairs_are_judged_by_shuffled_columns(value: float, shuffled: float, noise: float, grade: Grade) -> None:
    data = validated(FidelityFigure("t", PAIRS, value, noise, shuffled, noise))
    assert judge_table("t", data, FidelityPolicy()).grade is grade


@pytest.mark.parametrize(
    ("value", "noise", "grade"),
    [(0.05, 0.01, Grade.CLOSE), (0.3, 0.01, Grade.FAR), (0.3, 0.04, Grade.ROUGH), (0.3, 0.2, Grade.UNKNOWN)],
)
def test_columns_are_judged_by_their_limit_and_their_noise(value: float, noise: float, grade: Grade) -> None:
    assert judge_table("t", validated(FidelityFigure("t", COLUMNS, value, noise)), FidelityPolicy()).grade is grade


def test_shuffled_columns_that_noise_hides_are_no_reference() -> None:
    """.078, left of .31 ± .04 once columns that are .30 off are taken away, is ± .12."""
    figure = FidelityFigure("t", PAIRS, 0.1, 0.01, 0.31, 0.02).with_columns_off(0.3)
    assert judge_table("t", validated(figure), FidelityPolicy()).grade is Grade.UNKNOWN
    exact = FidelityFigure("t", PAIRS, 0.2, 0.01, 0.178, 0.01)
    assert judge_table("t", validated(exact), FidelityPolicy()).grade is Grade.FAR


def test_a_stricter_owner_asks_for_less_than_shuffled_columns() -> None:
    data = validated(FidelityFigure("t", PAIRS, 0.3, 0.001, 0.4, 0.001))
    assert judge_table("t", data, FidelityPolicy()).grade is Grade.ROUGH
    strict = judge_table("t", data, FidelityPolicy(to_shuffled=0.5))
    assert strict.grade is Grade.FAR
    assert str(strict).startswith("t: far: pairs of columns are no closer than 0.5 times shuffled columns (0.30 ± ")


def test_verdicts_come_worst_first_and_give_the_one_reason_that_matters() -> None:
    both = FidelityFigure("far", PAIRS, 0.4, 0.001, 0.4, 0.001), FidelityFigure("far", WHERE[1], 0.5, 0.001, 0.4, 0.001)
    tables = {
        "close": validated(FidelityFigure("close", COLUMNS, 0.01, 0.001)),
        "gone": validated(FidelityFigure("gone", COLUMNS, 0.0, 0.5), noise="3 ± 40 rows"),
        "far": validated(FidelityFigure("far", COLUMNS, 0.2, 0.001), *both),
        "unknown": validated(FidelityFigure("unknown", COLUMNS, 0.1, 0.5)),
    }
    found = judge_tables(tables, FidelityPolicy())
    assert [str(verdict) for verdict in found] == [
        "gone: all noise: 3 ± 40 rows",
        "far: far: pairs of columns are no closer than shuffled columns (0.40 ± 0.00 off; shuffled: 0.40 ± 0.00)",
        "unknown: not measurable: noise hides how far off single columns are (at most 1.00)",
        "close: close: single columns are 0.01 ± 0.00 off",
    ]
    assert [verdict.warns for verdict in found] == [True, True, True, False]
    assert [Verdict.from_dict(verdict.to_dict()) for verdict in found] == found
    assert blocking(tables, FidelityPolicy()) == []
    assert [line.partition(":")[0] for line in blocking(tables, FidelityPolicy(block=True))] == ["gone", "far"]


def test_what_was_lost_is_said_once_for_all_columns_of_which_it_is_true() -> None:
    """Figures count all values that were not named as one, so they see nothing of made-up ones."""
    close = FidelityFigure("person", COLUMNS, 0.01, 0.001)
    made_up = {"id": 1.0, "city": 0.63, "country": 0.02, "sex": 0.002, "zip": 0.9}
    tables = {
        "person": validated(close, made_up=made_up, zip="noise hid all of it", born="noise hid its range"),
        "visit": validated(at_bound={"pet": 0.03}, begun="noise hid its range"),
        "flight": validated(at_bound={"tailnum": 0.8}),
    }
    bound, named, *hidden = lost_in(tables)
    assert bound.startswith("flight.tailnum: about 80% of the rows belong to owners that reach max_children")
    assert named.endswith("Share of rows: person.id 100%, person.city 63%, person.country 2%")
    assert hidden == ["person.zip: noise hid all of it", "person.born, visit.begun: noise hid its range"]
