"""Fixtures of the tests of assets: the fake in place of every synthesizer, and a town under Dagster."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import privbench_core.pipeline.plans as pipeline_plans
from tests.helpers.fake_synthesizer import FakeSynthesizer

if TYPE_CHECKING:
    from tests.helpers.orchestrated import Orchestrated


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSynthesizer:
    """In place of every synthesizer."""
    made = FakeSynthesizer()
    monkeypatch.setattr(pipeline_plans, "load_synthesizer", lambda _: made)
    return made


@pytest.fixture
def operated(town_spec: Path, fake: FakeSynthesizer) -> Iterator[Orchestrated]:
    """The town under Dagster, with the fake synthesizer."""
    import dagster as dg

    from tests.helpers.orchestrated import Orchestrated

    with dg.DagsterInstance.ephemeral() as instance, warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield Orchestrated(town_spec, fake, instance)
