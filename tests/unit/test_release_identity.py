"""What an owner has paid for stays paid: the identity of every step of the example is pinned.

A change here means that every owner buys these steps again. If that is meant, raise the version of the step, say so in
the changelog, and renew the file: ``python -m tests.unit.test_release_identity``.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

import pytest

from privbench_core.pipeline import plan_for
from privbench_core.schema.identity import canonical_json
from privbench_core.spec.load import load_spec
from privbench_core.synthesizers.contract import StepKind

PINNED = Path(__file__).with_name("release_identities.json")
EXAMPLE = Path(__file__).parents[2] / "examples" / "households" / "spec.yaml"
SYNTHESIZERS = ("privbench", "privlava", "privpetal", "privspn", "relational")


def identities(synthesizer: str) -> dict[str, str]:
    """Return a digest of what determines each step of the example's plan, rows and inputs' content aside."""
    plan = plan_for(load_spec(EXAMPLE), 0.8, synthesizer=synthesizer)
    stated = {
        "/".join(step.key): {
            "version": step.code_version,
            "parameters": dict(step.parameters),
            "price": [step.price.measure.value, step.price.amount, step.price.delta],
            "reads": list(step.reads),
            "inputs": ["/".join(key) for key in step.inputs],
            "depends": list(step.depends),
        }
        for step in plan.steps
    }
    return {key: blake2b(canonical_json(value).encode(), digest_size=8).hexdigest() for key, value in stated.items()}


@pytest.mark.parametrize("synthesizer", SYNTHESIZERS)
def test_the_identities_of_the_example_are_the_pinned_ones(synthesizer: str):
    assert identities(synthesizer) == json.loads(PINNED.read_text(encoding="utf-8"))[synthesizer]


@pytest.mark.parametrize("synthesizer", SYNTHESIZERS)
def test_figures_are_of_rows_that_are_drawn_as_the_sample_is(synthesizer: str):
    """Else a bundle would show what was measured of rows that were drawn in an earlier way."""
    plan = plan_for(load_spec(EXAMPLE), 0.8, synthesizer=synthesizer)
    drawn = {step.table: step.version for step in plan.steps if step.kind is StepKind.SAMPLE}
    measured = {step.table: step.parameters["drawing"] for step in plan.steps if step.kind is StepKind.FIDELITY}
    assert measured == drawn


if __name__ == "__main__":
    found = {name: identities(name) for name in SYNTHESIZERS}
    PINNED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
