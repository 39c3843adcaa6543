"""A bundle that records more spending than the ledger knows of is not replaced, and nothing is spent in trying."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from privbench_core.errors import LedgerError
from privbench_core.pipeline.executor import run_spec
from privbench_core.pipeline.workspace import bundle_folder, open_ledger
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from tests.helpers.fake_synthesizer import FakeSynthesizer
from tests.helpers.orchestrated import Orchestrated, errors


def number_of_entries(spec: Spec) -> int:
    with closing(open_ledger(spec)) as ledger:
        return ledger.count()


def test_a_bundle_that_knows_of_more_is_not_replaced(town_spec: Path, fake: FakeSynthesizer) -> None:
    spec, out = load_spec(town_spec), town_spec.parent / "bundle"
    run_spec(spec, 0.8, out=out)
    run_spec(spec, 3.2, out=out)
    shutil.rmtree(spec.state)
    manifest = (out / "MANIFEST.json").read_bytes()
    fake.runs.clear()
    for epsilon in (0.8, 3.2, 3.2):
        with pytest.raises(LedgerError) as refused:
            run_spec(spec, epsilon, out=out)
    assert "records only ε=0" in str(refused.value)
    assert "nothing was spent" in str(refused.value)
    assert "another --out" in str(refused.value)
    assert fake.runs == []
    assert number_of_entries(spec) == 0
    assert (out / "MANIFEST.json").read_bytes() == manifest
    run_spec(spec, 0.8, out=town_spec.parent / "another")


@pytest.mark.usefixtures("fake")
def test_a_bundle_is_replaced_as_long_as_nothing_was_forgotten(town_spec: Path) -> None:
    spec, out = load_spec(town_spec), town_spec.parent / "bundle"
    run_spec(spec, 3.2, out=out)
    run_spec(spec, 0.8, out=out)  # the total has grown
    assert run_spec(spec, 3.2, out=out).paid == 0
    smaller = replace(spec, lifetime_epsilon=4.0, lifetime_delta=1e-9)  # at a δ of its own, the total looks larger
    run_spec(smaller, 0.8, out=out)
    run_spec(spec, 0.8, out=out)


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("delta", ["1.0e-9", "0"])
def test_a_bundle_says_so_whatever_its_measure(town_spec: Path, delta: str) -> None:
    text = town_spec.read_text(encoding="utf-8").replace("delta: 1.0e-9", f"delta: {delta}")
    town_spec.write_text(text, encoding="utf-8")
    spec, out = load_spec(town_spec), town_spec.parent / "bundle"
    run_spec(spec, 0.8, out=out)
    run_spec(spec, 0.8, out=out)
    shutil.rmtree(spec.state)
    run_spec(spec, 0.2, out=town_spec.parent / "another", undeclared_epsilon=True)
    with pytest.raises(LedgerError, match="Earlier spending is missing"):
        run_spec(spec, 0.8, out=out)


OTHERS = {
    "cohort": lambda manifest: manifest["privacy"]["guarantee"].update(cohort={"name": "2027"}),
    "unit": lambda manifest: manifest["privacy"]["guarantee"].update(unit="one row of person"),
    "no total": lambda manifest: manifest["privacy"]["guarantee"].pop("all_releases_so_far"),
    "no receipt": lambda manifest: manifest.update(privacy=None),
}


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("what", OTHERS)
def test_a_bundle_of_another_account_says_nothing(town_spec: Path, what: str) -> None:
    spec, out = load_spec(town_spec), town_spec.parent / "bundle"
    run_spec(spec, 0.8, out=out)
    manifest: dict[str, Any] = json.loads((out / "MANIFEST.json").read_text(encoding="utf-8"))
    OTHERS[what](manifest)
    (out / "MANIFEST.json").write_text(json.dumps(manifest), encoding="utf-8")
    shutil.rmtree(spec.state)
    run_spec(spec, 0.8, out=out)


def test_dagster_refuses_it_too(settled: Orchestrated) -> None:
    spec = settled.spec
    folder = bundle_folder(spec, "0.8")
    kept = settled.path.parent / "kept"
    shutil.move(folder, kept)
    shutil.rmtree(spec.state)
    shutil.copytree(kept, folder)
    (spec.state / "town" / "DATABASE").write_text("town", encoding="utf-8")
    result = settled.refresh("0.8")
    assert not result.success
    assert "Earlier spending is missing" in str(errors(result))
    assert settled.fake.runs == []
    assert number_of_entries(spec) == 0
