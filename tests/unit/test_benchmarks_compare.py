"""Paired comparisons: the arithmetic of pairs, what a verdict takes, and what a report says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from benchmarks import compare, mechanisms
from benchmarks.compare import Results, side_of
from benchmarks.compare_databases import sources
from benchmarks.compare_figures import Judge, Prepared
from benchmarks.compare_maker import PairedNoise
from benchmarks.compare_report import Comparison, report, write_json
from benchmarks.compare_runs import Checkout, Finished, Group
from benchmarks.paired import (
    FEWEST_PAIRS,
    Case,
    Cell,
    Change,
    Side,
    Verdict,
    change_of,
    judge,
    pairs_of,
    verdict_of,
    whole_verdict,
)
from privbench_core.errors import PrivbenchError
from privbench_core.evaluation import shuffled_reference
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.noise import Sensitivity
from tests.helpers.planted import place_of, planted_pair

BEFORE, AFTER = Side("one"), Side("two")
PLAIN, WITHOUT = Side("one"), Side("one", "signs", "1234")


def _cell(database: str = "chain", seed: int = 1, epsilon: float = 3.2, **more: str) -> Cell:
    return Cell(database, more.get("case", "rows"), epsilon, 1e-9, seed, more.get("synthesizer", "privbench"))


def _runs(*found: tuple[Side, Cell, dict[str, float]]) -> dict[Side, dict[Cell, dict[str, float]]]:
    runs: dict[Side, dict[Cell, dict[str, float]]] = {}
    for side, cell, figures in found:
        runs.setdefault(side, {})[cell] = {"seconds": 1.0, "peak_mb": 200.0, **figures}
    return runs


def _pairs(before: dict[int, float], after: dict[int, float], figure: str = "joined", database: str = "chain"):
    sides = ((BEFORE, before), (AFTER, after))
    given = [(side, _cell(database, seed), {figure: value}) for side, by in sides for seed, value in by.items()]
    return pairs_of(_runs(*given), BEFORE, AFTER)


def test_a_change_is_the_mean_of_paired_log_ratios_with_its_error():
    pairs = _pairs({1: 0.1, 2: 0.4, 3: 0.2}, {1: 0.11, 2: 0.4, 3: 0.18})
    logs = np.log([1.1, 1.0, 0.9])
    change = change_of(pairs)
    assert change.log == pytest.approx(logs.mean())
    assert change.error == pytest.approx(logs.std(ddof=1) / math.sqrt(3))
    assert change.pairs == 3


def test_runs_pair_only_with_runs_of_the_same_seed_rows_and_settings():
    own = _cell()
    others = (
        _cell(seed=2),
        _cell(case="other rows"),
        _cell(epsilon=0.8),
        _cell("diamond"),
        _cell(synthesizer="privlava"),
    )
    for other in others:
        assert not pairs_of(_runs((BEFORE, own, {"rows": 1.0}), (AFTER, other, {"rows": 1.0})), BEFORE, AFTER)


def test_figures_and_budgets_of_a_seed_are_one_difference():
    """Ten figures that say the same with each of two seeds are two pairs, not twenty."""
    once = change_of(_pairs({1: 1.0, 2: 1.0}, {1: 1.2, 2: 1.0}))
    figures = ("rows", "joined", "pairs", "columns")
    several = change_of([pair for name in figures for pair in _pairs({1: 1.0, 2: 1.0}, {1: 1.2, 2: 1.0}, name)])
    assert several == once


def test_the_error_of_a_mean_of_databases_is_that_of_independent_ones():
    one = _pairs({1: 1.0, 2: 1.0}, {1: 1.2, 2: 1.1})
    other = _pairs({1: 1.0, 2: 1.0, 3: 1.0}, {1: 0.9, 2: 0.8, 3: 1.0}, database="diamond")
    mean, parts = change_of([*one, *other]), [change_of(one), change_of(other)]
    assert mean.log == pytest.approx(np.mean([part.log for part in parts]))  # each database counts once
    assert mean.error == pytest.approx(np.hypot(parts[0].error, parts[1].error) / 2)


@pytest.mark.parametrize(
    ("log", "error", "verdict"),
    [
        (math.log(1.06), 0.01, Verdict.PAYS),
        (math.log(1.04), 0.001, Verdict.DOES_NOT_PAY),  # sure, and too little
        (math.log(1.06), 0.03, Verdict.UNDECIDED),  # enough, and not two standard errors
        (math.log(1.01), 0.03, Verdict.UNDECIDED),  # may well be 5%
        (-0.2, 0.03, Verdict.DOES_NOT_PAY),
        (0.0, 0.0, Verdict.DOES_NOT_PAY),  # never in effect
    ],
)
def test_a_gain_pays_by_two_errors_and_the_least_gain_at_once(log: float, error: float, verdict: Verdict):
    assert verdict_of(Change(log, error, FEWEST_PAIRS), 0.05) is verdict
    assert verdict_of(Change(log, error, FEWEST_PAIRS - 1), 0.05) is Verdict.UNDECIDED


def _grown(ratio: float, figure: str = "joined"):
    """Eight pairs, about ``ratio``."""
    return _pairs(dict.fromkeys(range(8), 1.0), {seed: ratio * 1.001**seed for seed in range(8)}, figure)


def test_what_grows_without_a_mechanism_is_its_gain_and_what_shrinks_after_a_change_is_its():
    worse, better = _grown(1.1), _grown(1 / 1.1)
    for pairs, off in ((worse, True), (better, False)):
        case, mean = judge(pairs, [Case("joined", "chain")], off=off)
        assert case.verdict is mean.verdict is Verdict.PAYS
    for pairs, off in ((worse, False), (better, True)):
        assert {each.verdict for each in judge(pairs, [Case("joined", "chain")], off=off)} == {Verdict.DOES_NOT_PAY}


def test_one_case_that_pays_is_enough_and_all_have_to_fail():
    cases = [Case("joined"), Case("rows"), Case("means", "nowhere")]
    judged = judge([*_grown(1.5), *_grown(1 / 1.5, "rows")], cases, off=True)
    assert [each.verdict.value for each in judged] == ["pays", "does not pay", "undecided", "does not pay"]
    assert whole_verdict(judged) is Verdict.PAYS
    assert whole_verdict(judged[1:]) is Verdict.UNDECIDED
    assert whole_verdict([judged[1], judged[3]]) is Verdict.DOES_NOT_PAY


def test_results_are_read_back_and_half_a_line_is_no_run(tmp_path: Path):
    file = tmp_path / "found.jsonl"
    results = Results.read(file)
    results.add(Finished(WITHOUT, _cell(), {"rows": 0.5, "seconds": 2.0}), "main")
    results.add(Finished(PLAIN, _cell(), {"rows": 0.25, "seconds": 1.0}), "main")
    whole = file.read_text()
    file.write_text(whole + whole[:40])  # killed while it wrote
    again = Results.read(file)
    assert again.runs == results.runs
    assert again.has(WITHOUT, _cell())
    assert not again.has(WITHOUT, _cell(seed=2))
    again.add(Finished(PLAIN, _cell(seed=2), {"rows": 0.3}), "main")
    assert Results.read(file).runs == again.runs


def test_only_runs_that_are_missing_are_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    asked: list[Group] = []
    unlucky = {2}

    class Instant:
        """Workers that finish at once, and fail with unlucky seeds."""

        def __init__(self, *_: object) -> None:
            self._waiting: list[Finished] = []

        def __enter__(self):
            return self

        def __exit__(self, *_: object) -> None: ...

        def give(self, group: Group) -> None:
            asked.append(group)
            for side in group.sides:
                bad = group.cell.seed in unlucky
                found = {} if bad else {"rows": 0.1, "seconds": 1.0, "peak_mb": 1.0}
                self._waiting.append(Finished(side, group.cell, found, "no luck" if bad else ""))

        def finished(self, *, wait: bool):
            del wait
            while self._waiting:
                yield self._waiting.pop()

    monkeypatch.setattr(compare, "Workers", Instant)
    file = tmp_path / "r.jsonl"
    given = Namespace(data=tmp_path, databases=["shop"], workers=1)
    checkouts = {"one": Checkout("main", tmp_path, "one")}

    def run(name: str, *sides: Side) -> list[str]:
        place = tmp_path / name
        place.mkdir()
        asked.clear()
        results = Results.read(file)

        def groups(prepared: Prepared) -> Iterable[Group]:
            return compare.groups_of(prepared, sides, results, 2, (0.8, 3.2), None, "privbench")

        return compare.make_runs(results, groups, checkouts, given, place)

    failed = run("first", PLAIN, WITHOUT)
    assert len(asked) == 4
    assert len(failed) == 4
    assert all("no luck" in line for line in failed)
    asked_first = {group.cell for group in asked}
    unlucky.clear()
    assert not run("again", PLAIN, WITHOUT)  # what failed is no run
    assert {group.cell for group in asked} == {cell for cell in asked_first if cell.seed == 2}
    run("done", PLAIN, WITHOUT)
    assert not asked
    run("more", PLAIN, Side("one", "lags", "5678"))
    assert {group.sides for group in asked} == {(Side("one", "lags", "5678"),)}


def test_a_report_compares_codes_with_the_first_and_what_lacks_a_mechanism_with_the_same_code(tmp_path: Path):
    results = Results.read(tmp_path / "r.jsonl")
    both = Side("one", "lags+signs", "5+6")
    for side, value in ((PLAIN, 0.1), (WITHOUT, 0.12), (both, 0.14), (AFTER, 0.1)):
        for seed in range(8):
            figures = {"joined": value, "rows": 0.1, "seconds": 1.0, "peak_mb": 200.0}
            results.add(Finished(side, _cell(seed=seed), figures), "main")
    found = [(each.before, each.after) for each in results.comparisons("", ())]
    assert found == [(PLAIN, AFTER), (PLAIN, WITHOUT), (PLAIN, both)]
    (more,) = [each for each in results.comparisons("signs", ()) if each.off]
    assert (more.before, more.after) == (WITHOUT, both)
    assert more.cases == mechanisms.MECHANISMS["lags"].cases
    text = report(results.runs, Comparison(PLAIN, WITHOUT, [Case("joined", "chain")], "signs off"))
    assert "| joined pairs | 1.20 ± .00 |" in text
    assert "- chain, joined pairs: gain × 1.20 ± .00: pays" in text
    assert "- **signs: pays**" in text
    file = write_json(results.runs, [Comparison(PLAIN, WITHOUT, [], "signs off")], tmp_path / "found" / "r.json")
    (setting,) = json.loads(file.read_text())[0]["settings"]
    cell = next(each for each in setting["cells"] if each["figure"] == "joined")
    assert (cell["pairs"], cell["before"]["mean"], cell["after"]["mean"]) == (
        8,
        pytest.approx(0.1),
        pytest.approx(0.12),
    )
    assert setting["verdict"] == "pays"


def test_noise_at_a_site_is_the_same_whatever_is_measured_before():
    price, sensitivity = Price(Measure.GDP, 0.1), Sensitivity(1, 1.0)
    zeros = np.zeros(5, dtype=np.int64)

    def drawn(seed: int, sites: list[str]) -> dict[str, list[int]]:
        noise = PairedNoise(seed)
        return {site: noise.add(site, zeros, sensitivity, price).tolist() for site in sites}

    assert drawn(1, ["a", "b"])["b"] == drawn(1, ["b"])["b"]
    assert drawn(1, ["a"])["a"] != drawn(1, ["b"])["b"]
    assert drawn(1, ["a"]) != drawn(2, ["a"])
    again = PairedNoise(1)
    first, second = (again.add("a", zeros, sensitivity, price).tolist() for _ in range(2))
    assert first != second


def test_a_database_is_judged_beside_its_rows(tmp_path: Path):
    schema, tables = planted_pair(parents=400)
    prepared = Prepared.of("pair", place_of(tmp_path / "one", schema, tables).spec)
    judged = Judge(prepared.spec)
    same = judged.figures(tables)
    assert same["q_95th"] == 1.0
    assert not any(same[name] for name in ("rows", "columns", "pairs", "joined", "fanout", "siblings"))
    shuffled = judged.figures(shuffled_reference(schema, tables, seed=0))
    assert shuffled["columns"] == shuffled["rows"] == 0.0
    assert min(shuffled["pairs"], shuffled["joined"]) > 0.05
    half = judged.figures({**tables, "child": tables["child"].slice(0, tables["child"].num_rows // 2)})
    assert half["rows"] == pytest.approx(math.log(2) / 2, abs=0.01)
    with pytest.raises(PrivbenchError, match="child: not made"):
        judged.figures({"parent": tables["parent"]})


def test_other_rows_are_another_case(tmp_path: Path):
    schema, tables = planted_pair(parents=50)
    _, others = planted_pair(parents=50, seed=1)
    found = [
        Prepared.of("pair", place_of(tmp_path / name, schema, rows).spec).fingerprint
        for name, rows in (("one", tables), ("two", tables), ("three", others))
    ]
    assert found[0] == found[1] != found[2]


def test_mechanisms_are_known_by_name_and_declared_for_databases_that_there_are(tmp_path: Path):
    with pytest.raises(PrivbenchError, match="sign: there is no such mechanism; there are adaptive_bins, "):
        side_of("one", "sign")
    assert side_of("one", "signs+lags") == side_of("one", "lags+signs")
    names = {source.name for source in sources(tmp_path)}
    assert {case.database for each in mechanisms.MECHANISMS.values() for case in each.cases} <= names


def test_what_mechanisms_leave_out_is_replaced_wherever_it_is_used():
    """In a process of its own: it does not come back. A name that is gone is said, or nothing would seem to be lost."""
    script = """
from benchmarks import mechanisms
from privbench_core.errors import PrivbenchError
from privbench_core.estimators import denoising
from privbench_core.links import measure_fanout as fanout
from privbench_core.marginals import spn
for name in mechanisms.MECHANISMS:
    mechanisms.leave_out([name])
assert fanout.shrink_haar is denoising.shrink_haar and fanout.shrink_haar(1, 2) == 1
assert spn.swap_to_fit(1, 2) is None
assert fanout._fitted_to_rows(1, 2) == {}
for place in ("marginals.spn.swapped", "units.measure_by_size.SizeStratifiedMarginals.never"):
    try:
        mechanisms._replace(place, None)
    except PrivbenchError as error:
        assert f"privbench_core.{place} is gone" in str(error)
    else:
        raise AssertionError(place)
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(mechanisms.__file__).parents[1])
