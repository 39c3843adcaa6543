"""What happens when assets are materialised: paid once, refused where it must be, nothing private in the event log."""

from __future__ import annotations

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privbench_core.backends.folder import FolderSource
from privbench_core.errors import SourceError
from privbench_core.pipeline.record import read_manifest
from privbench_core.pipeline.snapshot import Snapshot
from privbench_core.pipeline.workspace import Workspace, database_folder
from privbench_core.publishing import read_bundle
from privbench_core.schema.tables import Table
from tests.helpers.orchestrated import Orchestrated, errors, shown, versions

SECRET = "Smith, 17 Elm Street"
PAID = ["profile/household", "profile/person", "model/household", "model/person"]
FREE = ["fanout/person.household_id", "sample/household", "sample/person", "validate/all", "publish/bundle"]


def test_a_refresh_pays_once_and_a_second_reuses_everything(operated: Orchestrated) -> None:
    first = operated.refresh("0.8")
    assert first.success
    assert {"/".join(key) for key in operated.fake.runs} == {*PAID, *FREE}
    cost = operated.spent()
    second = operated.refresh("0.8")
    assert operated.fake.runs == [("publish", "bundle")]
    assert operated.spent() == cost > 0
    assert sum(shown(first)[step]["paid ρ"] for step in PAID) == pytest.approx(cost, rel=1e-4)
    for step in PAID:
        assert shown(second)[step]["paid ρ"] == 0
        assert "reused" in shown(second)[step]["paid by this run"]
    assert all(versions(first)[step] == versions(second)[step] for step in (*PAID, *FREE))
    config = {"resources": {"town__session": {"config": {"seed": 5, "scale": 3.0}}}}
    rows = [
        shown(result)["sample/person"]["dagster/row_count"]
        for result in (first, operated.refresh("0.8", config=config))
    ]
    assert rows[1] == pytest.approx(3 * rows[0], abs=3)
    assert operated.spent() == cost
    other = operated.refresh("3.2")
    assert all(versions(first)[step] != versions(other)[step] for step in PAID)
    left = [shown(result)["publish/bundle"]["lifetime ε left"] for result in (first, other)]
    assert 20 > left[0] > left[1] > 0


def test_metadata_shows_released_facts_and_the_place_of_a_whole_bundle(operated: Orchestrated) -> None:
    operated.fake.charted = True
    found = shown(operated.refresh("0.8"))
    profile, model, sample, bundle = (
        found[step] for step in ("profile/person", "model/person", "sample/person", "publish/bundle")
    )
    assert profile["distributions"].startswith("![Noisy counts of person](data:image/png;base64,iVBOR")
    assert len(profile["distributions"]) < 20_000
    assert (model["nodes"], model["of"]) == (1, {"kind": "constant"})
    folder = database_folder(operated.spec) / "bundles" / "0.8"
    assert sample["dagster/row_count"] == pq.read_table(folder / "data" / "person.parquet").num_rows
    columns = {column.name: column for column in sample["dagster/column_schema"].columns}
    assert list(columns) == ["id", "household_id", "age", "works"]
    assert columns["id"].constraints.unique
    assert columns["works"].constraints.nullable
    assert columns["household_id"].description == "references household(id)"
    assert sample["price"] == "free: reads no private row"
    assert profile["price ρ"] == pytest.approx(profile["paid ρ"])
    made_from = {"source/household", "source/person", "fanout/person.household_id", "model/person"}
    assert {record.data["asset"] for record in sample["made from"]} == made_from
    assert (bundle["bundle"], bundle["ε"]) == (str(folder), 0.8)
    files = {record.data["file"] for record in bundle["files"]}
    assert files == {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    guarantee = read_bundle(folder).manifest["privacy"]["guarantee"]
    assert guarantee["add_or_remove_one_unit"] == {"epsilon": 0.8, "delta": 1e-9}


def test_a_failed_check_stops_before_publishing_and_stays_in_the_way(operated: Orchestrated) -> None:
    operated.fake.fails = {"person"}
    result = operated.refresh("0.8")
    assert not result.success
    checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
    assert {name for name, check in checks.items() if not check.passed} == {"person__integrity"}
    assert checks["person__integrity"].severity is dg.AssetCheckSeverity.ERROR
    assert checks["person__integrity"].metadata["failed"].value == 1
    assert ("publish", "bundle") not in operated.fake.runs
    alone = operated.refresh("0.8", ["publish/bundle"])
    assert not alone.success
    assert "nothing was published" in errors(alone)
    assert not (database_folder(operated.spec) / "bundles").exists()


def test_a_source_that_changed_after_its_profile_is_refused(operated: Orchestrated) -> None:
    early = operated.refresh("0.8", ["model/person"])
    assert "profile/person: no result yet at ε=0.8; run this step first" in errors(early)
    assert operated.refresh("0.8", ["profile/household", "profile/person"]).success
    cost = operated.spent()
    operated.change("person")
    result = operated.refresh("0.8", ["model/person"])
    assert not result.success
    assert operated.spent() == cost
    said = errors(result)
    assert "SourceChangedError: person: the source changed after a step before model/person" in said
    assert "Run the profile of person" in said
    assert operated.refresh("0.8", ["model/household"]).success


def test_results_of_two_states_of_the_source_are_not_mixed_and_a_damaged_one_is_noticed(settled: Orchestrated) -> None:
    settled.change("household")
    assert settled.refresh("0.8", ["profile/household", "model/household", "sample/household"]).success
    both = settled.refresh("0.8", ["validate/all"])
    assert not both.success
    assert "household: the source changed" in errors(both)
    assert settled.refresh("0.8").success
    manifest = read_manifest(settled.spec, ("model", "person"), "0.8")
    assert manifest is not None
    workspace = Workspace(settled.spec)
    workspace.releases.path(manifest.release).write_bytes(b"PRIVBENCH1 nonsense")
    workspace.close()
    result = settled.refresh("0.8", ["sample/person"])
    assert not result.success
    assert "is damaged (checksum)" in errors(result)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ValueError(f"could not convert {SECRET!r} to int"),
            "InternalError: town/model/person_model: stopped by ValueError",
        ),
        (
            OSError(28, "No space left on device", SECRET),
            "ReleaseError: town/model/person_model: a file could not be read",
        ),
        (SourceError("person.age: 3 are wrong", private_detail=SECRET), "SourceError: person.age: 3 are wrong"),
    ],
)
def test_errors_say_nothing_private_and_keep_it_for_the_owner(
    operated: Orchestrated, error: Exception, said: str
) -> None:
    error.__cause__ = KeyError(SECRET)
    operated.fake.broken[("model", "person")] = error
    result = operated.refresh("0.8", ["profile/person", "model/person"])
    assert not result.success
    assert said in errors(result)
    assert SECRET not in errors(result)
    (kept,) = (database_folder(operated.spec) / "errors").iterdir()
    assert SECRET in kept.read_text()
    assert kept.name in errors(result)
    assert kept.stat().st_mode & 0o077 == 0


def test_a_status_that_cannot_be_gathered_hides_no_failure_and_says_nothing_private(
    operated: Orchestrated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise OSError(5, "Input/output error", SECRET)

    operated.fake.broken[("model", "person")] = SourceError("person.age: 3 are wrong")
    monkeypatch.setattr("privbench_assets.resources.status_of", unreadable)
    result = operated.refresh("0.8", ["profile/person", "model/person"])
    events = "\n".join(str(event) for event in operated.instance.all_logs(result.run_id))
    assert "SourceError: person.age: 3 are wrong" in errors(result)
    assert "benchmark_status could not be computed: OSError" in events
    assert SECRET not in events


def test_a_failed_look_counts_as_spent(operated: Orchestrated) -> None:
    operated.fake.broken[("model", "person")] = ValueError("x")
    first = operated.refresh("0.8", ["profile/person", "model/person"])
    assert list(versions(first)) == ["profile/person"], errors(first)
    once = operated.spent()
    operated.fake.broken.clear()
    again = operated.refresh("0.8", ["model/person"])
    assert again.success, errors(again)
    assert operated.spent() > once


def test_nothing_of_a_private_row_is_in_the_event_log(operated: Orchestrated) -> None:
    canary = 424_242_424_242
    path = operated.path.parent / "person.parquet"
    rows = pq.read_table(path)
    pq.write_table(rows.set_column(0, "id", pa.array([canary, *rows["id"].to_pylist()[1:]])), path)
    operated.observe()
    result = operated.refresh("0.8")
    assert result.success
    events = "\n".join(str(event) for event in operated.instance.all_logs(result.run_id))
    assert str(canary) not in events
    assert "person.parquet" in events


def test_private_rows_are_let_go_after_the_last_step_that_looks_at_them(
    operated: Orchestrated, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget, read = Snapshot.forget, FolderSource.read
    forgotten: list[int] = []
    asked: list[str] = []

    def forgetting(snapshot: Snapshot) -> None:
        forgotten.append(len(operated.fake.runs))
        forget(snapshot)

    def reading(source: FolderSource, table: Table) -> pa.Table:
        asked.append(table.name)
        return read(source, table)

    monkeypatch.setattr(Snapshot, "forget", forgetting)
    monkeypatch.setattr(FolderSource, "read", reading)
    assert operated.refresh("0.8").success
    done = ["/".join(key) for key in operated.fake.runs]
    assert {*done[: forgotten[0]]} >= {*PAID}
    assert done[forgotten[0] - 1] in PAID
    assert sorted(asked) == ["household", "person"]  # none twice
