"""Fixtures of the tests of assets: the fake in place of every synthesizer, and a town under Dagster."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import privbench_core.pipeline.plans as pipeline_plans
from tests.conftest import build_town, write_town
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
    with _operated(town_spec, fake) as made:
        yield made


@pytest.fixture(scope="session")
def settled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Orchestrated, Path]]:
    """A town that was made at ε=0.8 and not at 3.2, with a copy of its folder."""
    folder = tmp_path_factory.mktemp("settled")
    with pytest.MonkeyPatch.context() as patched:
        made = FakeSynthesizer()
        patched.setattr(pipeline_plans, "load_synthesizer", lambda _: made)
        with _operated(write_town(build_town(), folder / "town"), made) as operated:
            assert operated.refresh("0.8").success
            assert operated.tick() == {}
            yield operated, shutil.copytree(folder / "town", folder / "kept")


@pytest.fixture
def settled(settled_once: tuple[Orchestrated, Path], fake: FakeSynthesizer) -> Iterator[Orchestrated]:
    """A town under Dagster that was made at ε=0.8 and not at 3.2."""
    first, kept = settled_once
    shutil.rmtree(first.path.parent)
    shutil.copytree(kept, first.path.parent)
    with _operated(first.path, fake) as operated:
        for name in ("_event_storage", "_run_storage"):
            stored, copy = (getattr(each.instance, name)._held_conn.connection for each in (first, operated))
            stored.driver_connection.backup(copy.driver_connection)
        yield operated


@contextmanager
def _operated(spec: Path, synthesizer: FakeSynthesizer) -> Iterator[Orchestrated]:
    import dagster as dg

    from tests.helpers.orchestrated import Orchestrated

    with dg.DagsterInstance.ephemeral() as instance, warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield Orchestrated(spec, synthesizer, instance)
