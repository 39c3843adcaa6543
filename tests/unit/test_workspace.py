"""The state folder: its secret, who may enter it, and that it goes with its ledger and its releases."""

from __future__ import annotations

import shutil
import stat
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pytest

from privbench_core.errors import LedgerError, ReleaseError
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.budget import Measure, Price
from privbench_core.spec.load import load_spec


def test_each_state_folder_has_a_secret_of_its_own(town_spec: Path, tmp_path: Path) -> None:
    spec = load_spec(town_spec)
    secrets = []
    for name in ("one", "other"):
        for _ in range(2):  # made once, and found again
            with closing(Workspace(replace(spec, state=tmp_path / name))) as workspace:
                secrets.append(workspace.secret)
                assert workspace.keyed("text") == blake2b(b"text", key=workspace.secret, digest_size=16).hexdigest()
    assert secrets[0] == secrets[1] != secrets[2] == secrets[3]
    assert all(len(secret) == 16 for secret in secrets)


def test_only_its_owner_may_enter_a_state_folder(town_spec: Path) -> None:
    spec = load_spec(town_spec)
    spec.state.mkdir(mode=0o755)
    with closing(Workspace(spec)) as workspace:
        assert stat.S_IMODE(spec.state.stat().st_mode) == 0o700
        assert stat.S_IMODE(workspace.folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((workspace.spec.state / "secret.key").stat().st_mode) == 0o600


def test_a_ledger_that_has_lost_entries_is_refused(town_spec: Path) -> None:
    spec = load_spec(town_spec)
    with closing(Workspace(spec)) as workspace:
        workspace.ledger.reserve("release", "step", "run", Price(Measure.GDP, 1e-3))
        workspace.remember_spending()
    for file in spec.state.glob("ledger.sqlite*"):
        file.unlink()
    with pytest.raises(LedgerError, match="holds 0 reservations, but this state folder has seen 1"):
        Workspace(spec)


def test_stored_bytes_are_those_that_were_released(town_spec: Path) -> None:
    with closing(Workspace(load_spec(town_spec))) as workspace:
        releases = workspace.releases
        digest = releases.put("key", b"released")
        assert releases.get("key", {digest}) == b"released"
        releases.put("key", b"something else")
        with pytest.raises(ReleaseError, match="damaged"):
            releases.get("key", {digest})


def _spend(workspace: Workspace) -> None:
    """What a paid step leaves behind."""
    key = "ab" + "0" * 30
    entry = workspace.ledger.reserve(key, "step", "run", Price(Measure.GDP, 1e-3))
    workspace.remember_spending()
    workspace.ledger.release(entry, workspace.releases.put(key, b"released"))


DELETED = {
    "the ledger": ("ledger.sqlite*",),
    "and the memory of it": ("ledger.sqlite*", "spending"),
    "and the secret": ("ledger.sqlite*", "secret.key"),
    "all but the releases": ("ledger.sqlite*", "secret.key", "spending", "town/RESERVATIONS", "town/locks"),
    "and the releases": ("ledger.sqlite*", "town/releases"),
}


@pytest.mark.parametrize("what", DELETED)
def test_what_was_spent_is_not_forgotten_while_anything_of_it_is_left(town_spec: Path, what: str) -> None:
    spec = load_spec(town_spec)
    with closing(Workspace(spec)) as workspace:
        _spend(workspace)
    for pattern in DELETED[what]:
        for path in spec.state.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for _ in range(2):  # opening it, in vain, is no way to make it forget
        with pytest.raises(LedgerError, match=r"holds 0 reservations|is empty, but this state folder holds releases"):
            Workspace(spec)
    Workspace(spec, new_state=True).close()
    Workspace(spec).close()


def test_an_old_ledger_beside_newer_releases_is_refused_without_the_memory_of_it(town_spec: Path) -> None:
    spec = load_spec(town_spec)
    with closing(Workspace(spec)) as workspace:
        _spend(workspace)
    shutil.copy(spec.state / "ledger.sqlite", spec.state / "old")
    with closing(Workspace(spec)) as workspace:
        _spend(workspace)
    (spec.state / "old").rename(spec.state / "ledger.sqlite")
    shutil.rmtree(spec.state / "spending")
    with pytest.raises(LedgerError, match="holds 1 reservations, but this state folder has seen 2"):
        Workspace(spec)


def test_a_database_that_joins_others_in_a_folder_is_not_taken_for_one_that_forgot(town_spec: Path) -> None:
    spec = load_spec(town_spec)
    with closing(Workspace(spec)) as workspace:
        _spend(workspace)
    Workspace(replace(spec, schema=replace(spec.schema, name="village"))).close()
