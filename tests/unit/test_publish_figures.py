"""Figures are given with their noise, and never as 0 where there is nothing but noise."""

from __future__ import annotations

import pytest

from privbench_core.publishing.figures import FidelityFigure, fidelity_table

WHERE = ("person", "join TVD")


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
