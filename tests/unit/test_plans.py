"""Plans as trees, the edit distance between them, and the figures made of measured times."""

from __future__ import annotations

import pytest

from privbench_core.errors import SpecError
from privbench_core.evaluation.evaluation import run_time_verdicts
from privbench_core.explain.comparison import (
    DEFAULTS,
    ComparedQuery,
    PlanComparison,
    RunTimeSettings,
    missed_thresholds,
    percent,
    read_thresholds,
)
from privbench_core.explain.plan import Explained, QueryPlan, edit_distance, name_flips

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


def measured(number, source, synthetic, again, buffers=(10, 10), plans=(A, A)):
    one, other = (Explained(plan, 1, 1, (), (), pages=pages) for plan, pages in zip(plans, buffers, strict=True))
    return ComparedQuery(number, "select 1", ("", ""), ([source, 99, source - 1], [synthetic], [again]), (one, other))


def test_figures_of_run_times():
    times = [
        measured(1, 10, 15, 11),
        measured(2, 20, 10, 20, plans=(A, join(A, B))),
        measured(3, 8, 8, 6, buffers=(10, 25)),
    ]
    found = PlanComparison(tuple(times), ({"query": 4, "reason": "too slow"},), 4, RunTimeSettings(), "16.2").to_dict()
    assert found["discrepancy_percent"] == pytest.approx(
        {"mean": 100 / 3, "median": 50, "75th": 50, "95th": 50, "max": 50}
    )
    assert found["noise_percent"]["median"] == pytest.approx(10)
    assert found["buffers_discrepancy_percent"]["max"] == pytest.approx(150)
    assert found["same_plan"] == pytest.approx(2 / 3)
    assert found["plan_similarity"] == pytest.approx((1 + 0.4 + 1) / 3)
    assert (found["measured"], found["times"][0]["discrepancy_percent"]) == (3, pytest.approx(50))
    (remark,) = run_time_verdicts(found)
    assert str(remark).startswith("Run time: differs by 50.0% in the median; the source differs from itself by 10.0%.")


def test_nothing_measured_is_no_figure():
    found = PlanComparison((), ({"query": 1, "reason": "failed"},), 500, RunTimeSettings(limit=1), "16.2").to_dict()
    assert {found[name] for name in ("discrepancy_percent", "same_plan", "plan_similarity")} == {None}
    assert list(run_time_verdicts(found)) == []
    assert (percent(0, 0), percent(0, 1), percent(4, 3)) == (0, 100, 25)


def node(kind, *below, cost=1.0, rows=1, **more):
    return {"Node Type": kind, "Total Cost": cost, "Plan Rows": rows, "Plans": list(below), **more}


def scan_of(alias, index=None, kind="Index Scan", rows=1):
    more = {"Relation Name": alias, "Alias": alias}
    return (
        node("Seq Scan", rows=rows, **more) if index is None else node(kind, rows=rows, **more, **{"Index Name": index})
    )


def joined(left, right, method="Hash Join", rows=1):
    return node(method, left, node("Hash", right) if method == "Hash Join" else right, rows=rows)


def explained(root):
    return Explained.of({"Plan": root})


def test_what_explain_says_is_read():
    heap = node("Bitmap Heap Scan", node("Bitmap Index Scan", **{"Index Name": "b_y"}), **scan_of("b", rows=7))
    heap = {**heap, "Node Type": "Bitmap Heap Scan", "Plans": [node("Bitmap Index Scan", **{"Index Name": "b_y"})]}
    top = {**joined(scan_of("a"), heap, "Nested Loop", rows=40), "Actual Rows": 5.5, "Actual Loops": 2}
    root = node("Limit", node("Aggregate", top), cost=9.5, **{"Shared Hit Blocks": 3, "Temp Written Blocks": 2})
    found = Explained.of({"Plan": root, "Execution Time": 1.5})
    assert (found.cost, found.rows, found.actual_rows) == (9.5, 40, 11)
    assert (found.milliseconds, found.pages) == (1.5, 5)
    assert found.scans == (("a", "a", "Seq Scan", ()), ("b", "b", "Bitmap Heap Scan", ("b_y",)))
    assert found.joins == (("nested loop", ("a",), ("b",)),)
    assert explained(root).actual_rows is None


@pytest.mark.parametrize(
    ("before", "now", "flips"),
    [
        (scan_of("o"), scan_of("o"), ()),
        (scan_of("o", "o_date"), scan_of("o"), ("scan of o uses no index instead of o_date",)),
        (scan_of("o", "o_a"), scan_of("o", "o_b"), ("scan of o uses o_b instead of o_a",)),
        (
            scan_of("o", "o_a"),
            scan_of("o", "o_a", "Index Only Scan"),
            ("scan of o uses o_a alone (index-only) instead of o_a",),
        ),
        (
            joined(scan_of("a"), scan_of("b")),
            joined(scan_of("a"), scan_of("b"), "Nested Loop"),
            ("a joins b by nested loop instead of hash join",),
        ),
        (
            joined(scan_of("a"), scan_of("b")),
            joined(scan_of("b"), scan_of("a")),
            ("hash table on a instead of b",),
        ),
        (
            joined(joined(scan_of("a"), scan_of("b")), scan_of("c")),
            joined(scan_of("a"), joined(scan_of("b"), scan_of("c"))),
            ("join order: a, (b, c) instead of a, b, c",),
        ),
        (
            node("Aggregate", scan_of("a"), Strategy="Hashed"),
            node("Aggregate", node("Sort", scan_of("a")), Strategy="Sorted"),
            ("Aggregate sorted, Sort instead of Aggregate hashed",),
        ),
        (node("Limit", scan_of("a")), scan_of("a"), ("without Limit",)),
        (scan_of("a"), node("Limit", scan_of("a")), ("also Limit",)),
        (node("Append", scan_of("p1"), scan_of("p2")), node("Append", scan_of("p1")), ("no scan of p2",)),
    ],
)  # fmt: skip
def test_flipped_choices_are_named(before, now, flips):
    assert name_flips(explained(before), explained(now)) == flips


def test_a_comparison_keeps_its_limits_or_names_what_misses_them():
    times = (measured(1, 10, 15, 11), measured(2, 20, 10, 20, plans=(A, join(A, B))))
    figures = PlanComparison(times, ({"query": 3, "reason": "failed"},), 3, RunTimeSettings(), "16.2").figures
    assert figures == pytest.approx(
        {
            "answered": 2 / 3,
            "same_plan": 0.5,
            "cost_ratio": 1,
            "rows_q_error": 1,
            "time_ratio": 1.75,
            "time_noise": 1.05,
        }
    )
    assert missed_thresholds(figures, {"answered": 0.5, "same_plan": 0.5, "time_ratio": 2}) == {}
    missed = missed_thresholds(figures, {"answered": 0.9, "time_ratio": 1.5, "same_winner": 1})
    assert missed["answered"] == "queries that ran: 66.7%; at least 90.0% are required"
    assert missed["time_ratio"] == "run times, median ratio: 1.75; at most 1.58 is allowed"  # 1.5 times the noise
    assert list(missed) == ["answered", "time_ratio"]
    weighed = PlanComparison(
        times, ({"query": 3, "reason": "failed"},), 3, RunTimeSettings(), "16.2", (6, 3, 1)
    ).figures
    expected = {"answered": 0.9, "same_plan": 2 / 3, "time_ratio": 1.5, "time_noise": 1.1}
    assert {name: weighed[name] for name in expected} == pytest.approx(expected)
    assert PlanComparison(times, (), 2, RunTimeSettings(), "16.2", (0, 0)).figures["same_plan"] is None
    nothing = PlanComparison((), (), 3, RunTimeSettings(), "16.2").figures
    assert missed_thresholds(nothing) == {}


def test_thresholds_are_read_with_every_problem_named(tmp_path):
    file = tmp_path / "limits.yaml"
    file.write_text("same_plan: 0.5\ntime_ratio: 3\n")
    assert read_thresholds(file) == DEFAULTS | {"same_plan": 0.5, "time_ratio": 3}
    file.write_text("same_plan: 95\ncost_ratoi: 2\ntime_ratio: yes\n")
    with pytest.raises(SpecError) as caught:
        read_thresholds(file)
    assert [problem.split(": ", 2)[1] for problem in caught.value.problems] == ["same_plan", "cost_ratoi", "time_ratio"]
    assert "did you mean 'cost_ratio'" in str(caught.value)
    for text in ("- 1\n", ""):
        file.write_text(text)
        with pytest.raises(SpecError, match="expected lines such as"):
            read_thresholds(file)
    with pytest.raises(SpecError, match="cannot be read"):
        read_thresholds(tmp_path / "none.yaml")
