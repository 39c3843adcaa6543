"""The internal report as an asset: made on request, free, and nothing of what it says in the event log."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg
import pytest

from privbench_assets.assets import NOTICE
from privbench_core import api
from privbench_core.errors import SourceError
from privbench_core.pipeline.workspace import database_folder
from tests.helpers.orchestrated import Orchestrated, errors, shown

REPORT = "evaluate/report"
SECRET = "Smith, 17 Elm Street"


def materialize(operated: Orchestrated, epsilon: str, **how: Any) -> dg.ExecuteInProcessResult:
    job = operated.defs.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(partition_key=epsilon, instance=operated.instance, raise_on_error=False, **how)


def evaluate(operated: Orchestrated, epsilon: str) -> dg.ExecuteInProcessResult:
    return materialize(operated, epsilon, asset_selection=[operated.key(REPORT)])


def test_a_report_is_written_for_its_epsilon_and_only_its_place_is_shown(operated: Orchestrated) -> None:
    folder = database_folder(operated.spec) / "reports" / "0.8"
    config = {asked: {"ops": {"town__evaluate__report": {"config": {"write": asked}}}} for asked in (False, True)}
    everything = materialize(operated, "0.8", run_config=config[False])
    assert everything.success
    assert "publish/bundle" in shown(everything)
    for unasked in (everything, operated.refresh("0.8")):
        assert REPORT not in shown(unasked)
    early = evaluate(operated, "3.2")
    assert not early.success
    assert "PublishError: town: no bundle at ε=3.2 yet; materialise publish/bundle first" in errors(early)
    assert not folder.parent.exists()
    spent = operated.spent()
    result = materialize(operated, "0.8", run_config=config[True])
    assert result.success, errors(result)
    found = shown(result)[REPORT]
    assert set(found) == {"internal report", "seconds", "notice"}
    assert found["internal report"] == str(folder / "report.html")
    assert found["seconds"] >= 0
    assert found["notice"] == NOTICE
    metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["guarantee"].startswith("ε=0.8")
    assert metrics["privacy"]["membership_attacks"], "the plan of the bundle is rehearsed and attacked"
    assert "Do not publish" in (folder / "report.html").read_text(encoding="utf-8")
    assert folder.stat().st_mode & 0o077 == 0
    assert operated.spent() == spent
    events = "\n".join(str(event) for event in operated.instance.all_logs(result.run_id))
    assert metrics["verdict"]["summary"] not in events
    node = operated.defs.resolve_asset_graph().get(operated.key(REPORT))
    assert node.automation_condition is None
    assert (node.group_name, node.kinds) == ("town", {"report"})
    assert node.partitions_def is not None
    assert node.partitions_def.get_partition_keys() == ["0.8", "3.2"]


def test_a_certificate_is_written_when_asked_for_and_only_its_place_is_shown(
    settled: Orchestrated, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(api, "evaluate", lambda *_, **__: None)
    monkeypatch.setattr(api, "certify", lambda *_, out: asked.append(out))
    config = {"ops": {"town__evaluate__report": {"config": {"certify": True}}}}
    result = materialize(settled, "0.8", asset_selection=[settled.key(REPORT)], run_config=config)
    assert result.success, errors(result)
    (folder,) = asked
    assert shown(result)[REPORT]["internal certificate"] == str(folder / "certificate.html")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError(f"could not convert {SECRET!r} to int"), "InternalError: town/evaluate/report: stopped by Value"),
        (SourceError("person.age: some are wrong", private_detail=SECRET), "SourceError: person.age: some are wrong"),
    ],
)
def test_errors_say_nothing_private(
    settled: Orchestrated, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(api, "evaluate_bundle", fail)
    result = evaluate(settled, "0.8")
    assert not result.success
    assert said in errors(result)
    assert SECRET not in errors(result)
    (kept,) = (database_folder(settled.spec) / "errors").iterdir()
    assert SECRET in kept.read_text(encoding="utf-8")
