"""Asset checks of fidelity: warnings in plain words, errors only where the owner says that they block."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from privbench_assets.checks import check_results
from privbench_assets.resources import session_resource
from privbench_assets.status import report_status
from privbench_core.privacy.budget import Measure, zero
from privbench_core.publishing.verdicts import FidelityFigure
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import FidelityPolicy
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.steps.publish import validate_step

FAR = FidelityFigure("person", "two-way TVD", 0.4, 0.01, 0.3, 0.01)
CLOSE = FidelityFigure("person", "two-way TVD", 0.1, 0.01, 0.3, 0.01)


@pytest.mark.parametrize(
    ("figure", "noise", "block", "passed", "severity"),
    [
        (CLOSE, "", True, True, dg.AssetCheckSeverity.WARN),
        (FAR, "", False, False, dg.AssetCheckSeverity.WARN),
        (FAR, "", True, False, dg.AssetCheckSeverity.ERROR),
        (CLOSE, "3 ± 40 rows", False, False, dg.AssetCheckSeverity.WARN),
        (CLOSE, "3 ± 40 rows", True, False, dg.AssetCheckSeverity.ERROR),
    ],
)
def test_fidelity_warns_and_blocks_where_the_spec_says_so(
    town_spec: Path, figure: FidelityFigure, noise: str, block: bool, passed: bool, severity: dg.AssetCheckSeverity
) -> None:
    spec = replace(load_spec(town_spec), fidelity=FidelityPolicy(block=block))
    step = validate_step(spec.schema, spec.schema.table("person"), zero(Measure.GDP))
    held = {"name": "expect_x", "column": "age", "success": True, "unexpected_count": 0, "table": "person"}
    released = {
        "expectations": [held],
        "figures": [figure.to_dict()],
        "noise": noise,
        "guessed": {},
        "made_up": {},
        "at_bound": {},
    }
    integrity, fidelity = check_results(spec, step, dg.AssetKey(["town"]), Artifact(released))
    assert integrity.passed
    assert (fidelity.passed, fidelity.severity) == (passed, severity)
    told = fidelity.description or ""
    assert ("all noise: 3 ± 40 rows" in told) is bool(noise)
    shown = {name: fidelity.metadata[name] for name in fidelity.metadata if name.startswith("two-way TVD")}
    assert shown == {
        "two-way TVD": dg.MetadataValue.float(figure.value),
        "two-way TVD, ±": dg.MetadataValue.float(0.02),
        "two-way TVD, columns shuffled": dg.MetadataValue.float(0.3),
    }


def test_a_run_can_accept_noise_by_its_configuration(town_spec: Path) -> None:
    schema = session_resource(load_spec(town_spec), {}, report_status).config_schema.as_field().config_type
    assert {"seed", "scale", "accept_noise"} <= set(schema.fields)  # type: ignore[attr-defined]
