"""A published workload steers the budget: what its text touches gets more of it, the rest less, rows have no say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from privbench_core.commands.plan import show_plans
from privbench_core.marginals.measure_pairs import PairwiseFit
from privbench_core.pipeline import plan_for
from privbench_core.privacy.budget import Measure, Price
from privbench_core.schema.queried import UNQUERIED
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan
from privbench_core.workload import Workload
from privbench_core.workload.engine import queried_by
from tests.helpers.planted import curator_of, one_way_of, place_of, planted_pair
from tests.unit.test_models_pairwise import SIZES, planted

SCHEMA, ROWS = planted_pair(60)
PARENT_A, CHILD_X, CHILD_B = ("parent", "a"), ("child", "x"), ("child", "b")
KEY = "child.parent_id"


def spec_with(folder: Path, queries: str = "") -> Spec:
    spec = place_of(folder, SCHEMA, ROWS).spec
    if queries:
        (folder / "queries.sql").write_text(queries, encoding="utf-8")
        spec = replace(spec, workload=folder / "queries.sql")
    spec.path.write_text(dump_spec(spec), encoding="utf-8")
    return load_spec(spec.path)


def prices(plan: Plan) -> dict[str, float]:
    return {"/".join(step.key): step.price.amount for step in plan.steps if step.reads}


def identities(plan: Plan) -> list[object]:
    return [step.identity for step in plan.steps]


@pytest.mark.parametrize(
    ("sql", "columns", "pairs", "keys"),
    [
        ("SELECT count(*) FROM child WHERE x < 4", {CHILD_X}, 0, set()),
        ("SELECT c.b, count(*) FROM Child c WHERE c.X = 1 GROUP BY 1", {CHILD_X, CHILD_B}, 1, set()),
        ("SELECT b, x FROM child ORDER BY x", {CHILD_X}, 0, set()),
        ("SELECT avg(x) FROM child GROUP BY b", {CHILD_X, CHILD_B}, 1, set()),
        (
            "SELECT 1 FROM parent p JOIN child c ON c.parent_id = p.id WHERE a = 'v1' AND x = 1",
            {PARENT_A, CHILD_X},
            1,
            {KEY},
        ),
        ("SELECT count(*) FROM parent WHERE id IN (SELECT parent_id FROM child)", set(), 0, {KEY}),
        ("SELECT count(*) FROM nowhere WHERE x = 1", set(), 0, set()),
    ],
)
def test_what_a_query_touches_is_read_from_its_text(sql, columns, pairs, keys):
    found = queried_by(Workload.of([sql]), SCHEMA)
    assert (found.columns, len(found.pairs), found.keys) == (columns, pairs, keys)


def test_prices_follow_what_is_touched_down_to_a_floor(tmp_path: Path):
    plain = prices(plan_for(spec_with(tmp_path / "plain"), 1.0))
    steered = prices(
        plan_for(spec_with(tmp_path / "child", "SELECT count(*) FROM child WHERE b = 'v1' AND x < 4;"), 1.0)
    )
    ratios = {step: steered[step] / plain[step] for step in plain}
    assert ratios["profile/child"] > 1 > ratios["profile/parent"] > UNQUERIED
    assert sum(steered.values()) == pytest.approx(sum(plain.values()))


def test_a_plan_follows_what_queries_touch_and_not_their_constants(tmp_path: Path):
    plain = identities(plan_for(spec_with(tmp_path / "plain"), 1.0))
    texts = ("SELECT count(*) FROM child WHERE x < 4 AND b = 'v1';", "SELECT 1 FROM child WHERE b = 'v0' OR x = 9;")
    first, second = (identities(plan_for(spec_with(tmp_path / str(n), text), 1.0)) for n, text in enumerate(texts))
    other = identities(plan_for(spec_with(tmp_path / "other", "SELECT count(*) FROM parent WHERE a = 'v1';"), 1.0))
    useless = identities(plan_for(spec_with(tmp_path / "useless", "SELECT count(*) FROM nowhere;"), 1.0))
    assert first == second
    assert useless == plain
    assert first != plain
    assert other not in (first, plain)


def test_pairs_that_queries_have_are_measured_more_closely():
    codes, price = planted(), Price(Measure.GDP, 0.001)

    def noise(fit: PairwiseFit) -> dict[tuple[str, str], float]:
        curator, account = curator_of(codes, SIZES, price)
        leaf = fit.fit(curator, one_way_of(codes, SIZES, sigma=20.0), price, {})
        assert account.spent.fits(price)
        return {pair: table.sigma for pair, table in leaf.tables.items()}

    plain, steered = noise(PairwiseFit()), noise(PairwiseFit(queried=frozenset({frozenset("cd")})))
    assert steered.keys() == plain.keys() == {("a", "b"), ("c", "d")}
    assert steered["c", "d"] < 0.9 * plain["c", "d"]
    assert plain["a", "b"] < steered["a", "b"] < 2 * plain["a", "b"]


def test_plan_says_what_the_workload_steers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    spec = spec_with(tmp_path, "SELECT count(*) FROM child WHERE b = 'v1' AND x < 4;")
    show_plans(spec.path, 1.0)
    said = " ".join(capsys.readouterr().out.split())
    assert "queries.sql steers the budget: what its queries touch counts in full" in said
    assert "They touch 2 columns, 1 pairs of them, 0 foreign keys." in said
    show_plans(spec.path, 1.0, as_json=True)
    steered = json.loads(capsys.readouterr().out)["steered_by_workload"]
    assert steered == {"columns": 2, "pairs of them": 1, "foreign keys": 0}
