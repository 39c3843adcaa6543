"""Dagster's storage in PostgreSQL, as `deploy/postgres` sets it up."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pgserver
import pytest

DEPLOY = Path(__file__).parents[2] / "deploy" / "postgres"


@pytest.fixture
def url(tmp_path):
    server = pgserver.get_server(tmp_path / "pg", cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()


def test_runs_and_events_land_in_postgresql(url, tmp_path, monkeypatch):
    monkeypatch.setenv("PRIVBENCH_DAGSTER_URL", url.replace("postgresql://", "postgresql+psycopg2://", 1))
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text((DEPLOY / "dagster.yaml").read_text(encoding="utf-8"), encoding="utf-8")

    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["0.8"]))
    def bundle() -> dg.MaterializeResult:
        return dg.MaterializeResult(metadata={"rows": 3})

    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert not instance.telemetry_enabled
        assert "postgres" in type(instance.event_log_storage).__name__.lower()
        assert dg.materialize([bundle], instance=instance, partition_key="0.8").success
        event = instance.get_latest_materialization_event(dg.AssetKey("bundle"))
        assert event is not None
        assert event.asset_materialization.metadata["rows"].value == 3
