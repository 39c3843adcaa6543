"""Fixtures of the tests of assets: the fake in place of every synthesizer, and a town under Dagster."""

from __future__ import annotations

import shutil
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import privbench_core.pipeline as pipeline_plans
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
def settled_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[sqlite3.Connection]]:
    """A town that was made at ε=0.8 and not at 3.2: a copy of its folder, and of what Dagster stored."""
    folder, made = tmp_path_factory.mktemp("settled"), FakeSynthesizer()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pipeline_plans, "load_synthesizer", lambda _: made)
        with _operated(write_town(build_town(), folder / "town"), made) as operated:
            assert operated.refresh("0.8").success
            assert operated.tick() == {}
            stored = [sqlite3.connect(":memory:") for _ in _storages(operated)]
            for storage, copy in zip(_storages(operated), stored, strict=True):
                storage.backup(copy)
    return (folder / "town").rename(folder / "kept"), stored


@pytest.fixture
def settled(settled_once: tuple[Path, list[sqlite3.Connection]], fake: FakeSynthesizer) -> Iterator[Orchestrated]:
    """A town under Dagster that was made at ε=0.8 and not at 3.2, always in the same folder."""
    kept, stored = settled_once
    folder = shutil.copytree(kept, kept.with_name("town"))
    with _operated(folder / "spec.yaml", fake) as operated:
        for copy, storage in zip(stored, _storages(operated), strict=True):
            copy.backup(storage)
        yield operated
    shutil.rmtree(folder)


def _storages(operated: Orchestrated) -> list[sqlite3.Connection]:
    """Where Dagster stores events and runs of an instance in memory."""
    stored = (getattr(operated.instance, name) for name in ("_event_storage", "_run_storage"))
    return [storage._held_conn.connection.driver_connection for storage in stored]


@contextmanager
def _operated(spec: Path, synthesizer: FakeSynthesizer) -> Iterator[Orchestrated]:
    import dagster as dg

    from tests.helpers.orchestrated import Orchestrated

    with dg.DagsterInstance.ephemeral() as instance, warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        yield Orchestrated(spec, synthesizer, instance)
