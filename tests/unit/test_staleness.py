"""What is stale and why, from manifests and fingerprints alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from privbench_core.pipeline import plans_for
from privbench_core.pipeline.record import (
    Manifest,
    definition_of,
    last_observed,
    read_manifest,
    step_name,
    write_manifests,
)
from privbench_core.pipeline.status import ReleaseState, staleness
from privbench_core.pipeline.workspace import claim_folder, record_file
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Key

pytestmark = pytest.mark.usefixtures("fake")
LINE_OF_PERSON = ["profile/person", "model/person", "fanout/person.household_id", "sample/person"]
END = ["validate/all", "publish/bundle"]
SEEN = {"household": "h1", "person": "p1"}


@pytest.fixture
def spec(town_spec: Path) -> Spec:
    """A town whose steps were all made at ε=0.8, as far as manifests say."""
    found = load_spec(town_spec)
    claim_folder(found)
    plan, sources = plans_for(found)["0.8"], dict[Key, dict[str, str]]()
    for step in plan.steps:
        sources[step.key] = {table: SEEN[table] for table in step.reads}
        for before in step.inputs:
            sources[step.key] |= sources[before]
        inputs = {step_name(key): f"digest of {step_name(key)}" for key in step.inputs}
        made = Manifest("r", f"digest of {step_name(step.key)}", sources[step.key], inputs, definition_of(plan, step))
        write_manifests(found, "0.8", {step.key: made})
    return found


def state(spec: Spec, observed: Mapping[str, str] = SEEN) -> ReleaseState:
    states = staleness(spec, plans_for(spec), observed)
    assert not states["3.2"].released
    assert states["3.2"].pending == ()
    assert len(states["3.2"].outdated) == 9
    return states["0.8"]


def pending(spec: Spec, observed: Mapping[str, str] = SEEN) -> list[str]:
    return [step_name(step.key) for step in state(spec, observed).pending]


def edit(spec: Spec, key: Key, **changes: object) -> None:
    made = read_manifest(spec, key, "0.8")
    assert made is not None
    write_manifests(spec, "0.8", {key: Manifest(**{**made.__dict__, **changes})})


def test_nothing_is_stale_while_nothing_changed(spec: Spec) -> None:
    assert state(spec).up_to_date
    assert state(spec).why() == ""
    assert state(spec, {}).up_to_date, "what was never looked at counts as unchanged"


def test_a_change_reaches_its_line(spec: Spec) -> None:
    assert pending(spec, SEEN | {"person": "p2"}) == [*LINE_OF_PERSON, *END]
    assert state(spec, SEEN | {"person": "p2"}).why() == "person changed"
    assert len(pending(spec, {"household": "h2", "person": "p2"})) == 9
    assert state(spec, SEEN | {"person": "p2"}).source != state(spec).source


def test_a_step_that_was_made_again_reaches_what_follows(spec: Spec) -> None:
    edit(spec, ("model", "person"), digest="another")
    assert pending(spec) == [*LINE_OF_PERSON[2:], *END]
    assert state(spec).why() == "model/person was made again"


def test_an_edit_is_outdated_but_not_pending(spec: Spec) -> None:
    edit(spec, ("model", "person"), definition="before")
    assert pending(spec) == []
    found = state(spec)
    assert [step_name(step.key) for step in found.outdated] == [*LINE_OF_PERSON[1:], *END]
    assert found.why() == "the spec or the code of model/person changed"
    assert not found.up_to_date
    assert "model/person" in pending(spec, SEEN | {"person": "p2"}), "a change takes the edit along"


def test_what_failed_its_validation_blocks_the_bundle_until_it_is_made_again(spec: Spec) -> None:
    edit(spec, ("validate", "all"), failed=2, digest="another")
    assert pending(spec) == []
    assert "validate/all: 2 expectations do not hold" in state(spec).why()
    assert pending(spec, SEEN | {"person": "p2"}) == [*LINE_OF_PERSON, *END]


def test_a_record_that_was_only_begun_holds_nothing(spec: Spec) -> None:
    record_file(spec).write_bytes(b"")
    assert read_manifest(spec, ("model", "person"), "0.8") is None
    assert last_observed(spec) == {}
    edited = Manifest("r", "d", {}, {})
    write_manifests(spec, "0.8", {("model", "person"): edited})
    assert read_manifest(spec, ("model", "person"), "0.8") == edited
