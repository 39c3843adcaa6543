"""Plans as trees, the edit distance between them, and the figures made of measured times."""

from __future__ import annotations

import pytest

from privbench_core.evaluation.runtime import (
    RunTimeSettings,
    percent,
    query_time,
    run_time_figures,
    run_time_verdicts,
)
from privbench_core.explain.plan import Explained, QueryPlan, edit_distance

A, B, C = (QueryPlan(f"Seq Scan on {name}") for name in "abc")


def join(left, right, label="Hash Join"):
    return QueryPlan(label, (left, QueryPlan("Hash", (right,))))


def test_plans_are_read_without_what_differs_by_chance():
    scan = {"Node Type": "Index Scan", "Relation Name": "t", "Index Name": "t_x_idx1", "Scan Direction": "Forward",
            "Actual Rows": 17}  # fmt: skip
    node = {
        "Node Type": "Aggregate",
        "Strategy": "Hashed",
        "Plans": [
            {"Node Type": "Nested Loop", "Join Type": "Semi", "Parent Relationship": "Outer", "Plans": [scan]},
            {"Node Type": "Seq Scan", "Relation Name": "u", "Parent Relationship": "SubPlan"},
        ],
    }
    plan = QueryPlan.of(node)
    loop = QueryPlan("Nested Loop semi", (QueryPlan("Index Scan on t"),))
    assert plan == QueryPlan("Aggregate hashed", (loop, QueryPlan("Seq Scan on u as SubPlan")))
    assert plan.size == 4
    assert QueryPlan.of({**node, "Actual Rows": 3}) == plan


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        (A, A, 0),
        (A, B, 1),
        (join(A, B), join(A, B), 0),
        (join(A, B), join(B, A), 2),
        (join(A, B), join(A, B, "Merge Join"), 1),
        (join(A, B), QueryPlan("Hash Join", (A, B)), 1),
        (A, join(A, B), 3),
        (join(join(A, B), C), join(A, join(B, C)), 4),
        (join(join(A, B), C), join(A, C), 3),
        (QueryPlan("Sort", (QueryPlan("Sort", (A,)),)), QueryPlan("Sort", (A,)), 1),
    ],
)
def test_edit_distance(one, other, distance):
    assert edit_distance(one, other) == distance
    assert edit_distance(other, one) == distance


def test_the_example_of_zhang_and_shasha():
    f = QueryPlan("f", (QueryPlan("d", (QueryPlan("a"), QueryPlan("c", (QueryPlan("b"),)))), QueryPlan("e")))
    g = QueryPlan("f", (QueryPlan("c", (QueryPlan("d", (QueryPlan("a"), QueryPlan("b"))),)), QueryPlan("e")))
    assert edit_distance(f, g) == 2


def measured(number, source, synthetic, again, buffers=(10, 10), plans=(A, A)):
    explained = [Explained(plan, 1, 1, (), (), pages=pages) for plan, pages in zip(plans, buffers, strict=True)]
    return query_time(number, "select 1", [[source, 99, source - 1], [synthetic], [again]], explained)


def test_figures_of_run_times():
    times = [
        measured(1, 10, 15, 11),
        measured(2, 20, 10, 20, plans=(A, join(A, B))),
        measured(3, 8, 8, 6, buffers=(10, 25)),
    ]
    found = run_time_figures(times, [{"query": 4, "reason": "too slow"}], 4, RunTimeSettings(), "16.2")
    assert found["discrepancy_percent"] == pytest.approx({"mean": 100 / 3, "median": 50, "75th": 50, "max": 50})
    assert found["noise_percent"]["median"] == pytest.approx(10)
    assert found["buffers_discrepancy_percent"]["max"] == pytest.approx(150)
    assert found["same_plan"] == pytest.approx(2 / 3)
    assert found["plan_similarity"] == pytest.approx((1 + 0.4 + 1) / 3)
    assert (found["measured"], found["times"][0]["discrepancy_percent"]) == (3, pytest.approx(50))
    (remark,) = run_time_verdicts(found)
    assert str(remark).startswith("Run time: differs by 50.0% in the median; the source differs from itself by 10.0%.")


def test_nothing_measured_is_no_figure():
    found = run_time_figures([], [{"query": 1, "reason": "failed"}], 500, RunTimeSettings(limit=1), "16.2")
    assert {found[name] for name in ("discrepancy_percent", "same_plan", "plan_similarity")} == {None}
    assert list(run_time_verdicts(found)) == []
    assert (percent(0, 0), percent(0, 1), percent(4, 3)) == (0, 100, 25)
