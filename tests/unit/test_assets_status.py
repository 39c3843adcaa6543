"""How far every table is, as `benchmark_status` tells it."""

from __future__ import annotations

import re

import dagster as dg
import pytest

from privbench_assets.checks import UP_TO_DATE
from privbench_assets.status import BUDGET, DATABASE
from privbench_core.pipeline.record import last_observed
from privbench_core.pipeline.workspace import database_folder
from privbench_core.privacy.budget import Budget
from tests.helpers.orchestrated import Orchestrated, errors, failure_of, shown

AGE = re.compile(r", \d+ (min|h|d) old \([\d-]{10} [\d:]{5}\)$")


def status(operated: Orchestrated) -> dict[str, str]:
    return shown(operated.refresh("0.8", ["benchmark_status"]))["benchmark_status"]


def states(operated: Orchestrated) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in status(operated)["state"].split("\n")]
    assert rows[0] == ["table", "ε=0.8", "ε=3.2"]
    return {row[0]: [AGE.sub("", cell) for cell in row[1:]] for row in rows[2:]}


def test_states_from_nothing_to_published(operated: Orchestrated) -> None:
    nothing = ["not made", "not made"]
    assert states(operated) == {"household": nothing, "person": nothing, DATABASE: nothing}
    assert operated.refresh("0.8", ["profile/household", "model/household", "profile/person"]).success
    assert states(operated) == {
        "household": ["modelled", "not made"],
        "person": ["profiled", "not made"],
        DATABASE: nothing,
    }
    assert operated.refresh("0.8").success
    done = ["published", "not made"]
    assert states(operated) == {"household": done, "person": done, DATABASE: done}
    assert "| person | published, 0 min old (" in status(operated)["state"]


def test_a_changed_source_and_its_half_made_refresh_are_told(settled: Orchestrated) -> None:
    settled.change("person")
    settled.observe()
    assert status(settled)["bundles out of date"] == 1
    found = states(settled)
    assert found["household"][0] == "sampled"
    assert found["person"][0] == "sampled; source changed since (person)"
    assert found[DATABASE][0] == "published; source changed since (person)"
    line = ["profile/person", "model/person", "fanout/person.household_id", "sample/person"]
    assert settled.refresh("0.8", line).success
    found = states(settled)
    assert found["person"][0] == "sampled"
    assert found[DATABASE][0] == "published; source changed since (person)"
    assert settled.refresh("0.8").success
    assert states(settled)["person"][0] == "published"


def headline(operated: Orchestrated) -> str:
    """Return the first line of the last status."""
    event = operated.instance.get_latest_materialization_event(operated.key("benchmark_status"))
    assert event is not None
    assert event.asset_materialization is not None
    return str(event.asset_materialization.metadata["summary"].value)


def bundle_checks(operated: Orchestrated) -> dict[str, tuple[bool, str]]:
    """What the last check of each bundle says, by ε."""
    key = dg.AssetCheckKey(operated.key("publish/bundle"), UP_TO_DATE)
    found: dict[str, tuple[bool, str]] = {}
    for record in operated.instance.event_log_storage.get_asset_check_execution_history(key, limit=50):
        evaluation = record.event.dagster_event.asset_check_evaluation_data if record.event else None
        if evaluation is not None and evaluation.partition:
            found.setdefault(evaluation.partition, (evaluation.passed, evaluation.description or ""))
    return found


def test_the_first_line_says_what_is_stale_and_what_it_costs(operated: Orchestrated) -> None:
    operated.observe()
    assert headline(operated).startswith("nothing released yet; a release at all ε costs ")
    assert operated.refresh("0.8").success
    assert headline(operated).startswith("up to date at 0.8; a refresh of all ε costs ")
    operated.change("person")
    operated.observe()
    said = re.fullmatch(
        r"stale at 0\.8: person changed; refreshing costs (\d+\.\d)% of the lifetime budget, about (\d+) more possible",
        headline(operated),
    )
    assert said, headline(operated)
    plan = operated.fake.plan(operated.spec.schema, Budget(0.8, 1e-9), {})
    share = 2 * plan.step(("model", "person")).price.rho / Budget(20.0, 1e-8).total().amount  # and as much to profile
    assert float(said[1]) == pytest.approx(100 * share, abs=0.05)
    assert int(said[2]) == pytest.approx(1 / share, rel=0.1)


def test_an_observation_updates_the_check_of_every_bundle(settled: Orchestrated) -> None:
    assert settled.refresh("3.2").success
    for table in ("household", "person"):  # runs record what they saw of the source
        observed = settled.instance.fetch_observations(settled.key(f"source/{table}"), limit=1).records[0]
        assert observed.asset_observation is not None
        tags = observed.asset_observation.tags
        assert tags["dagster/data_version"] == last_observed(settled.spec)[table]
    fine = (True, "made from the source, the spec and the code as they are now")
    assert bundle_checks(settled) == {"0.8": fine, "3.2": fine}
    settled.change("person")
    for _ in range(2):
        settled.observe()
        stale = (False, "stale: person changed")
        assert bundle_checks(settled) == {"0.8": stale, "3.2": stale}
    assert settled.refresh("3.2").success
    assert bundle_checks(settled) == {"0.8": stale, "3.2": fine}


def test_the_status_is_reported_by_every_run_that_changes_it_and_after_a_failure(operated: Orchestrated) -> None:
    assert operated.refresh("0.8", ["profile/person"]).success
    assert headline(operated).startswith("nothing released yet")
    assert operated.refresh("0.8").success
    assert headline(operated).startswith("up to date at 0.8")
    reported = operated.instance.fetch_materializations(operated.key("benchmark_status"), limit=9).records
    assert len(reported) == 2
    assert operated.refresh("0.8", ["profile/person"]).success
    assert operated.instance.fetch_materializations(operated.key("benchmark_status"), limit=9).records == reported
    operated.fake.broken[("model", "person")] = ValueError("x")
    operated.change("person")
    refused = operated.refresh("0.8")
    assert not refused.success
    one_line_and_metadata(operated, refused)
    assert headline(operated).startswith("stale at 0.8: person changed; refreshing costs ")


def one_line_and_metadata(operated: Orchestrated, result: dg.ExecuteInProcessResult) -> None:
    """What the interface shows of the one step that failed: no stack trace, no cause."""
    failure = failure_of(operated, result)
    said, error = failure.user_failure_data, failure.error
    assert said is not None
    assert error is not None
    assert {"error", "lifetime ε spent", "lifetime ε left"} <= set(said.metadata)
    assert (error.message, list(error.stack), error.cause, error.context) == (f"{said.description}\n", [], None, None)
    assert str(said.description).count("\n") == 0


def test_a_broken_table_does_not_stand_in_the_way_of_the_others(settled: Orchestrated) -> None:
    settled.change("person")
    (settled.path.parent / "household.parquet").write_bytes(b"no parquet")
    job = settled.defs.resolve_job_def("town_observe")
    result = job.execute_in_process(instance=settled.instance, raise_on_error=False)
    assert not result.success
    assert "SourceError: household: could not be observed, the other tables were; household: " in errors(result)
    one_line_and_metadata(settled, result)
    logged = [
        log.dagster_event
        for log in settled.instance.all_logs(result.run_id, dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    ]
    checked = [event.asset_check_evaluation_data.check_name for event in logged if event is not None]
    assert checked == [UP_TO_DATE]
    budget = dg.AssetCheckKey(settled.key("benchmark_status"), BUDGET)
    history = settled.instance.event_log_storage.get_asset_check_execution_history(budget, limit=9)
    assert len(history) == 2, "a status without its check would look unchecked"
    assert headline(settled).startswith("stale at 0.8: person changed; ")


def test_spending_is_told_by_epsilon_and_in_total(operated: Orchestrated) -> None:
    before = status(operated)
    assert (before["lifetime ε spent"], before["lifetime ε left"]) == (0, 20)
    assert before["spending"].count("| nothing | never | none |") == 2
    assert operated.refresh("0.8").success
    after = status(operated)
    line = next(line for line in after["spending"].split("\n") if line.startswith("| 0.8 "))
    assert "ε=0.79" in line  # a whole release at 0.8, a hair less for the part of δ set aside
    assert ".privbench/town/bundles/0.8" in line
    total = next(line for line in after["spending"].split("\n") if line.startswith("| **together** "))
    assert "ε=0.79" in total
    assert 0.7 < after["lifetime ε spent"] < 0.8
    assert after["lifetime ε spent"] + after["lifetime ε left"] == pytest.approx(20)
    assert re.search(r"\| ε=0\.8 \| █+ \| \d+\.\d% \|\n\| left \| ░{20,40} \| \d\d\.\d% \|", after["lifetime budget"])


def test_pure_budgets_are_told_in_epsilon(operated: Orchestrated) -> None:
    text = operated.path.read_text(encoding="utf-8")
    operated.path.write_text(text.replace("delta: 1.0e-9", "delta: 0").replace("delta: 1.0e-8", "delta: 0"))
    operated.reload()
    assert shown(operated.refresh("0.8"))["profile/person"]["paid ε"] == pytest.approx(0.2)
    assert "| 0.8 | ε=0.8 | ε=0.8 |" in status(operated)["spending"]


def declare(operated: Orchestrated, terms: str) -> Orchestrated:
    """The same database with more under ``privacy``."""
    text = operated.path.read_text(encoding="utf-8")
    operated.path.write_text(text.replace("privacy: {", f"privacy: {{{terms}, "), encoding="utf-8")
    return Orchestrated(operated.path, operated.fake, operated.instance)


def budget_check(result: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    (check,) = (c for c in result.get_asset_check_evaluations() if c.check_name == BUDGET)
    return check


def test_refreshes_are_counted_and_the_last_one_warns(operated: Orchestrated) -> None:
    strict = declare(operated, "refresh: {epsilon: 4, times: 2}")
    first = strict.refresh("0.8")
    found = shown(first)["benchmark_status"]
    assert (found["refreshes begun"], found["refreshes left"]) == (1, 1)
    assert "Policy: ε=4 for each of 2 refreshes." in found["refreshes"]
    assert "A refresh of all 2 ε costs 3.8% of the lifetime budget (ρ=" in found["refreshes"]
    assert "Warning: the next refresh (number 2) is the last that is affordable." in found["refreshes"]
    check = budget_check(first)
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "is the last that is affordable" in (check.description or "")
    assert first.success, "the warning stops nothing"
    assert budget_check(operated.refresh("0.8", ["benchmark_status"])).passed, "without the policy there are many more"


def test_a_cohort_has_its_own_account_and_its_own_bundles(settled: Orchestrated) -> None:
    later = declare(settled, "cohort: y2027")
    nothing = shown(later.refresh("0.8", ["benchmark_status"]))["benchmark_status"]
    assert (nothing["lifetime ε spent"], nothing["cohort"]) == (0, "y2027")
    assert "no name ε=0.7" in nothing["refreshes"]
    assert "For a person who is in several, the ε add up." in nothing["refreshes"]
    result = later.refresh("0.8")
    assert shown(result)["publish/bundle"]["bundle"].endswith("/bundles/y2027/0.8")
    assert (database_folder(settled.spec) / "bundles" / "0.8" / "MANIFEST.json").exists()
