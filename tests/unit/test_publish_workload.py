"""A workload of the spec: declared public, re-bound to the synthetic rows, published with them and accounted for."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from privbench_assets.checks import check_results, check_specs
from privbench_assets.resources import Session
from privbench_core.errors import SourceError, SpecError
from privbench_core.pipeline import plan_for
from privbench_core.pipeline.executor import RunResult
from privbench_core.pipeline.runner import Run, Runner
from privbench_core.pipeline.workspace import Workspace
from privbench_core.publishing import read_bundle
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import StepContext
from privbench_core.workload import Workload, read_workload
from tests.helpers.noise import seed_noise
from tests.helpers.planted import Place, place_of, planted_pair

QUERIES = """-- the queries of our dashboard
select count(*) from child where x < 4;
select count(*) from parent p join child c on c.parent_id = p.id where p.a = 'v1' and p.id = 123456789;
select count(*) from parent where id < 100;
select nothing from parent;
"""
EPSILON = 40.0


def place_with(folder: Path, text: str = QUERIES, **more: float) -> Place:
    """A database whose spec, read from its file, has a workload."""
    place = place_of(folder, *planted_pair(300), **more)
    (folder / "queries.sql").write_text(text, encoding="utf-8")
    spec = replace(place.spec, workload=folder / "queries.sql")
    spec.path.write_text(dump_spec(spec), encoding="utf-8")
    return Place(load_spec(spec.path))


def files(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def with_workload(folder: Path, part: str) -> Path:
    """A spec file with ``part`` as its workload."""
    path = place_of(folder, *planted_pair(3)).spec.path
    path.write_text(path.read_text(encoding="utf-8") + f"workload: {part}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("literals", ["", ", literals: hide"])
def test_the_spec_names_the_file_and_is_written_back(tmp_path: Path, literals: str):
    spec = load_spec(with_workload(tmp_path, f"{{file: sub/q.sql, public: true{literals}}}"))
    assert spec.workload == tmp_path / "sub" / "q.sql"
    assert spec.literals == ("hide" if literals else "rebind")
    assert "file: sub/q.sql" in dump_spec(spec)
    spec.path.write_text(dump_spec(spec), encoding="utf-8")
    assert load_spec(spec.path) == spec
    assert load_spec(place_of(tmp_path / "none", *planted_pair(3)).spec.path).workload is None


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("{file: q.sql}", "workload: public is missing; the text of the queries is published"),
        ("{file: q.sql, public: false}", "workload: public is False; the text of the queries is published"),
        ('{file: q.sql, public: "true"}', "workload: public is 'true'; the text of the queries is published"),
        ("q.sql", "spec: workload is 'q.sql'; write {file: queries.sql, public: true}: the text of the queries"),
        ("{public: true}", "workload: file is missing; name a file"),
        ("{file: q.sql, public: true, privat: 1}", "workload: unknown key 'privat'"),
        ("{file: q.sql, public: true, literals: drop}", "workload: literals is 'drop'; write hide to publish no"),
    ],
)
def test_each_mistake_is_one_problem(tmp_path: Path, part: str, expected: str):
    with pytest.raises(SpecError) as caught:
        load_spec(with_workload(tmp_path, part))
    (problem,) = caught.value.problems
    assert problem.startswith(expected)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, RunResult]:
    """A run whose spec has a workload."""
    with pytest.MonkeyPatch.context() as patch:
        seed_noise(patch)
        place = place_with(tmp_path_factory.mktemp("published"))
        return place, place.run(EPSILON)


def test_the_bundle_has_queries_that_its_manifest_accounts_for(published: tuple[Place, RunResult]):
    place, result = published
    bundle = read_bundle(place.out)
    noted = bundle.manifest["privacy"]["workload"]["queries"]
    assert (noted["queries"], noted["left_out"][0]["query"], noted["left_out"][1]["query"]) == (2, 3, 4)
    assert noted["left_out"][0]["reason"] == "parent.id: compares a key, and keys are regenerated"
    assert "nothing" in noted["left_out"][1]["reason"]
    assert "released noisy" in noted["rule"]
    assert bundle.manifest["privacy"]["public"]["workload_texts"] == ["queries"]
    # The key is another one at any rate; x is distributed as it was, so at most its literal moves too.
    assert noted["literals_rebound"] in {1, 2}
    text = bundle.workload["queries"]
    assert "123456789" not in text
    assert "dashboard" not in text
    statements = read_workload(place.out / "workload" / "queries.sql").statements
    assert len(statements) == 2
    literal = int(statements[0].sql.rpartition("< ")[2])
    small = sum(x < literal for x in bundle.table("child")["x"].to_pylist())
    assert text.startswith(f"-- query 1: cardinality {small:,}\n")
    assert "`queries.sql`" in (place.out / "README.md").read_text(encoding="utf-8")
    (asset,) = check_results(place.spec, step := result.plan.step(("publish", "bundle")), dg.AssetKey("b"),
                             result.releases[step.key].artifact)  # fmt: skip
    assert not asset.passed
    assert asset.description.startswith(
        "left out: query 3 (parent.id: compares a key, and keys are regenerated); query"
    )
    assert "workload" in [spec.name for spec in check_specs(place.spec, step, dg.AssetKey("b"), None)]
    assert result.workload == {"queries": noted}
    # It cost nothing, and the same releases give the same bytes.
    assert result.paid == pytest.approx(place.spent)
    assert [name for name, _ in place.booked if "publish" in name] == []
    first = files(place.out)
    assert place.run(EPSILON).paid == 0
    assert files(place.out) == first
    session = Session(place.spec, {"3.2": plan_for(place.spec, 3.2)})  # as Dagster's runs do
    workload = read_workload(place.spec.path.parent / "queries.sql")
    assert session.executor("3.2", ()).runner.run.workload == {"queries": workload}
    session.close()


def test_hidden_constants_are_in_no_file_of_the_bundle(published: tuple[Place, RunResult]):
    """With everything else that an owner of hidden constants publishes, and with another key of the release."""
    place, _ = published
    queries = place.spec.path.parent / "queries.sql"
    text = (
        "-- name: secret_name\n-- weight: 7\n" + QUERIES + "select count(*) as secret_alias from parent where x = $1;"
    )
    try:
        queries.write_text(text, encoding="utf-8")
        hidden = Place(replace(place.spec, literals="hide"))
        hidden.run(EPSILON)
        bundle = read_bundle(hidden.out)
        noted = bundle.manifest["privacy"]["workload"]["queries"]
        assert (noted["literals"], noted["queries"]) == ("hidden", 3)
        assert [left["query"] for left in noted["left_out"]] == [4, 5]
        assert "-- weight: 7\n" in bundle.workload["queries"]
        everything = b"".join(content for name, content in files(hidden.out).items() if "data/" not in name)
        assert all(word not in everything for word in (b"secret", b"123456789", b"dashboard"))
    finally:
        queries.write_text(QUERIES, encoding="utf-8")
        place.run(EPSILON)


def test_literals_follow_the_released_marginal_and_not_the_rows(published: tuple[Place, RunResult], tmp_path: Path):
    """The same synthetic rows with another released marginal publish another literal."""
    _, result = published
    step = result.plan.step(("publish", "bundle"))
    artifacts = {key: result.releases[key].artifact for key in step.inputs}
    released = deepcopy(artifacts["profile", "child"].data)
    counts = dict(released["profile"]["one_way"]["counts"]["mapping"])["x"]
    counts[:] = 0
    counts[0] = 1000  # all values are 0, as far as was released
    artifacts["profile", "child"] = Artifact(released)
    workload = {"w": Workload.of(["select count(*) from child where x < 4"])}
    step.run(StepContext(artifacts, None, {}, 0, out=tmp_path / "other", workload=workload))
    bundle = read_bundle(tmp_path / "other")
    assert bundle.manifest["privacy"]["workload"]["w"]["literals_rebound"] == 1
    assert '"x" < 9' in bundle.workload["w"]


def test_cardinalities_of_the_source_stay_behind(tmp_path: Path):
    place = place_with(tmp_path, "select count(*) from parent||0||987654321\n")
    place.run(EPSILON)
    assert all(b"987654321" not in content for content in files(place.out / "workload").values())
    assert b"987654321" not in (place.out / "MANIFEST.json").read_bytes()


def test_a_workload_without_counterparts_is_noted_but_not_written(tmp_path: Path):
    place = place_with(tmp_path, "select count(*) from parent where id > 5;")
    place.run(EPSILON)
    bundle = read_bundle(place.out)
    assert bundle.workload == {}
    assert bundle.manifest["privacy"]["workload"]["queries"]["queries"] == 0
    assert len(bundle.manifest["privacy"]["workload"]["queries"]["left_out"]) == 1


@pytest.mark.parametrize("text", [None, "-- nothing yet\n"])
def test_a_file_that_cannot_be_used_is_refused_before_anything_is_spent(tmp_path: Path, text: str | None):
    place = place_with(tmp_path, text or "")
    if text is None:
        place.spec.workload.unlink()
    with pytest.raises(SourceError, match=r"queries\.sql: "):
        place.run(EPSILON)
    assert place.booked == []


def test_without_a_workload_the_bundle_says_nothing_of_one(tmp_path: Path):
    place = place_of(tmp_path, *planted_pair(300))
    place.run(EPSILON)
    bundle = read_bundle(place.out)
    assert "workload" not in bundle.manifest["privacy"]
    assert bundle.manifest["privacy"]["public"]["workload_texts"] == []
    assert bundle.workload == {}


def test_queries_are_part_of_the_identity_of_a_bundle_and_of_nothing_else(published: tuple[Place, RunResult]):
    place, result = published
    workspace = Workspace(place.spec)
    runs = [Run("r"), *(Run("r", workload={"w": Workload.of([f"select {n}"])}) for n in (1, 2))]
    digests = {key: release.digest for key, release in result.releases.items()}
    keys = [
        [Runner(workspace, result.plan, run).release_key(step, digests) for step in result.plan.steps] for run in runs
    ]
    workspace.close()
    *before, publish = zip(*keys, strict=True)
    assert len(set(publish)) == 3
    assert all(len(set(key)) == 1 for key in before)
