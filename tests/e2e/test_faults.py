"""Failure modes and recovery. ``docs/faults.md`` has a row for each test here, and a test holds the two together.

After every fault: nothing was looked at that the ledger does not count, the lifetime budget holds, there is a whole
bundle or none, and what had been released is not paid for again.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import resource
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import pytest

import privbench_core.privacy.ledger.ledger as ledger_module
from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.errors import LedgerError, ReleaseError
from privbench_core.files import exclusive
from privbench_core.pipeline.workspace import Workspace, database_folder
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.publishing import read_bundle
from privbench_core.spec.load import load_spec
from tests.helpers.faults import PAID, Town
from tests.helpers.ledgers import Place, new_place, raw

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
DEPLOYMENT = Path(__file__).parents[1] / "integration" / "test_deploy_postgres.py"
RANGES = Path(__file__).parents[1] / "unit" / "test_sampling_processes.py"
MEMORY = Path(__file__).parents[1] / "unit" / "test_memory.py"
NewTown = Callable[..., Town]
IN_POSTGRESQL_SLOWLY = pytest.mark.parametrize(
    "place", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture
def new_town(town_spec: Path, tmp_path: Path, place: Place) -> NewTown:
    """Makes towns whose ledgers are in one database, or each in a file of its own."""
    numbers = itertools.count()
    Ledger(place, "another", "u", Budget(1.0)).close()  # so that every run finds the tables, in either database

    def make(*, lifetime: float = 20.0) -> Town:
        folder = tmp_path / f"town-{next(numbers)}"
        shutil.copytree(town_spec.parent, folder)
        text = (folder / "spec.yaml").read_text(encoding="utf-8").replace("database: town", f"database: {folder.name}")
        text = text.replace("lifetime: {epsilon: 20, delta: 1.0e-8}", f"lifetime: {{epsilon: {lifetime}}}")
        if isinstance(place, str):
            text = text.replace("privacy: {", f"privacy: {{ledger: '{place}', ")
        (folder / "spec.yaml").write_text(text, encoding="utf-8")
        return Town(folder / "spec.yaml", folder / "bundle")

    return make


def survive(town: Town, kill_at: int) -> None:
    """Kill a first run at a moment; check; run again, and once more."""
    assert town.run(kill_at) == "killed"
    looked, released = town.looked(), town.booked("released")
    town.check(looked)
    assert town.run().startswith("done")
    looked += town.looked()
    town.check(looked)
    booked = town.booked()
    assert all(booked[step] == 1 for step in released), "what was released was bought again"
    assert set(booked) == set(PAID)
    assert sum(booked.values()) <= len(PAID) + 1, "more than the step that was at work was lost"
    assert town.run() == "done paid=0"
    assert town.booked() == booked
    assert not town.looked()


def all_moments(new_town: NewTown) -> list[str]:
    """Everything that a run does, in order."""
    town = new_town()
    assert town.run().startswith("done")
    assert town.looked() == Counter(dict.fromkeys(PAID, 1))
    return town.moments()


@IN_POSTGRESQL_SLOWLY
@pytest.mark.parametrize("apart", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_at_every_step_boundary(new_town: NewTown, apart: int) -> None:
    boundaries = [number for number, name in enumerate(all_moments(new_town)) if name.endswith(" execute")]
    assert len(boundaries) == 18
    for number in boundaries[::apart]:  # before and after steps by turns
        survive(new_town(), number)


@IN_POSTGRESQL_SLOWLY
@pytest.mark.parametrize("kills", [pytest.param(4, id="4"), pytest.param(200, marks=pytest.mark.slow, id="200")])
def test_killed_at_random_moments(new_town: NewTown, kills: int) -> None:
    number = len(all_moments(new_town))
    for moment in np.random.default_rng(0).integers(number, size=kills):
        survive(new_town(), int(moment))


@pytest.mark.parametrize("kills", [pytest.param(3, id="3"), pytest.param(200, marks=pytest.mark.slow, id="200")])
def test_killed_inside_of_a_ledger_transaction(new_town: NewTown, kills: int) -> None:
    names = all_moments(new_town)
    depth = np.cumsum([{"before reserve": 1, "before charge": 1, "before release": 1}.get(name, 0) for name in names])
    depth -= np.cumsum([{"after reserve": 1, "after charge": 1, "after release": 1}.get(name, 0) for name in names])
    inside = np.flatnonzero(depth)
    assert len(inside) > 12
    for moment in np.random.default_rng(1).choice(inside, kills):
        survive(new_town(), int(moment))


def test_two_daemons_at_once(new_town: NewTown) -> None:
    town = new_town(lifetime=0.8)  # for one run, not for two
    others = [Town(town.spec, town.out) for _ in range(2)]
    with ThreadPool(2) as pool:
        endings = pool.map(lambda one: one.run(), others)
    assert all(ending.startswith("done") for ending in endings), endings
    town.check(others[0].looked() + others[1].looked())
    assert town.booked() == Counter(dict.fromkeys(PAID, 1))
    read_bundle(town.out)


def test_the_disk_is_full(new_town: NewTown, place: Place) -> None:
    town, endings, looked = new_town(), [], Counter[str]()
    for size in (0, 50, 500, 1_000, 1_500, 5_000):
        released = town.booked("released")
        endings.append(town.run(largest_file=size).split()[0])
        looked += town.looked()
        town.check(looked)
        assert not set(released) & set(town.looked()), "what was released was looked at again"
        assert not list(town.spec.parent.rglob("*partial*")) + list(town.spec.parent.rglob("releases/*/tmp*"))
    first = {"OSError:", "LedgerError:" if isinstance(place, Path) else "ReleaseError:"}  # which disk is full
    assert first <= set(endings) <= {*first, "PublishError:", "done"}
    assert town.run().startswith("done")
    town.check(looked + town.looked())
    before = {path: path.read_bytes() for path in town.out.rglob("*") if path.is_file()}
    assert town.run(largest_file=1_500).startswith(("PublishError", "LedgerError"))
    assert {path: path.read_bytes() for path in town.out.rglob("*") if path.is_file()} == before


def test_the_ledgers_disk_is_full(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite", "d", "u", Budget(100.0))
    entry = ledger.reserve("r", "s", "run", Price(Measure.PURE, 1.0))
    size = (tmp_path / "ledger.sqlite-wal").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with pytest.raises(LedgerError):
            _often(lambda: ledger.reserve("r", "s", "run", Price(Measure.PURE, 1.0)))
        with pytest.raises(LedgerError):
            _often(lambda: ledger.release(entry, "digest"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    ledger.reserve("r", "s", "run", Price(Measure.PURE, 1.0))
    assert ledger.balance().spent == len(ledger.entries()) >= 2
    ledger.close()


def _often(write: Callable[[], object]) -> None:
    for _ in range(50):
        write()


def test_the_ledgers_connection_breaks(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = new_place("postgresql", tmp_path, lambda: postgres)
    ledger = Ledger(place, "d", "u", Budget(10.0))
    throw_out = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
    entry = ledger.reserve("r", "s", "run", Price(Measure.PURE, 1.0))
    raw(place, throw_out)
    ledger.release(entry, "digest")  # between two transactions it connects again
    raw(place, throw_out)
    assert ledger.released("r") == {"digest"}
    monkeypatch.setattr(ledger, "require", lambda *_: raw(place, throw_out))  # in the midst of a transaction
    with pytest.raises(LedgerError):
        ledger.reserve("r", "s", "run", Price(Measure.PURE, 1.0))
    monkeypatch.undo()
    assert ledger.balance().spent == 1.0
    ledger.reserve("r", "s", "run", Price(Measure.PURE, 9.0))
    assert ledger.balance().left == 0
    ledger.close()


@pytest.mark.slow
def test_the_database_is_gone_and_comes_back() -> None:
    with temporary_postgres() as server:
        ledger = Ledger(server.url, "d", "u", Budget(10.0))
        ledger.reserve("r", "s", "run", Price(Measure.PURE, 4.0))
        server.stop("immediate")
        with pytest.raises(LedgerError, match="cannot be used"):
            Ledger(server.url, "d", "u", Budget(10.0))  # who begins now is told at once
        with ThreadPool(1) as pool:  # who is at work waits
            waiting = pool.apply_async(ledger.reserve, ("r", "s", "run", Price(Measure.PURE, 5.0)))
            server.start()
            assert waiting.get(90) > 1  # a crash skips numbers, and never goes back
        assert ledger.balance().spent == 9.0
        ledger.close()


@IN_POSTGRESQL_SLOWLY
@pytest.mark.parametrize("ways", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_stored_release_is_damaged(new_town: NewTown, ways: int) -> None:
    town = new_town()
    assert town.run().startswith("done")
    booked, stored = town.booked(), sorted((database_folder(load_spec(town.spec)) / "releases").rglob("*.bin"))
    assert len(stored) == 9
    endings = []
    for number, path in enumerate(stored):
        whole = path.read_bytes()
        damaged = [whole[:-1], bytes([*whole[:-1], whole[-1] ^ 1]), b""]
        for content in (damaged * 2)[number % 3 :][:ways]:
            path.write_bytes(content)
            endings.append(town.run().partition(":")[0])
            town.check(Counter())
            assert not town.looked()
        path.write_bytes(whole)
    # What was paid for is refused until it is restored; what is free is made again.
    assert Counter(endings) == {"ReleaseError": ways * len(PAID), "done paid=0": ways * (len(stored) - len(PAID))}
    assert town.run() == "done paid=0"
    assert town.booked() == booked


@IN_POSTGRESQL_SLOWLY
def test_a_half_written_bundle(new_town: NewTown) -> None:
    town = new_town()
    assert town.run().startswith("done")
    booked = town.booked()
    data = town.out / "data" / "person.parquet"
    data.write_bytes(data.read_bytes()[:-10])
    with pytest.raises(Exception, match="does not match its checksum"):
        read_bundle(town.out)
    assert town.run() == "done paid=0"
    read_bundle(town.out)
    assert town.booked() == booked


@pytest.mark.slow
@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
def test_killed_while_a_bundle_is_replaced(new_town: NewTown) -> None:
    town = new_town()
    assert town.run().startswith("done")
    assert town.run() == "done paid=0"
    moments = town.moments()
    first = len(moments) - 1 - moments[::-1].index("before execute")  # of the step that publishes
    put_back = 0
    for number in range(first, len(moments)):
        assert town.run(number) == "killed"
        put_back += not town.out.exists()
        read_bundle(town.out)  # the one before, or the new one: at once, without another run
    assert put_back == 2, "the moments between the two renames"
    assert town.run() == "done paid=0"
    assert not list(town.spec.parent.rglob("*partial*"))


@IN_POSTGRESQL_SLOWLY
def test_another_process_never_ends(new_town: NewTown) -> None:
    town = new_town()
    with exclusive(town.out.with_name(".bundle.partial") / "lock", "the same bundle"):
        ended = town.run(max_wait=0.2)
    assert ended.startswith(f"BusyError: the folder {town.out}: process {os.getpid()} on ")
    assert "more than 0.2 s" in ended
    assert town.booked("released") == Counter(dict.fromkeys(PAID, 1))
    assert town.run() == "done paid=0"
    state = database_folder(load_spec(town.spec))
    made = [path.stem for path in (state / "releases").rglob("*.bin")]
    shutil.rmtree(state / "releases")
    with ExitStack() as hanging:
        for key in made:
            hanging.enter_context(exclusive(state / "locks" / key, "a step"))
        assert town.run(max_wait=0.2).startswith("BusyError: profile/household: process ")
    assert not town.looked()
    assert town.booked() == Counter(dict.fromkeys(PAID, 1))


def test_the_clock_jumps(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    days = iter(f"20{year}-01-01T00:00:00+00:00" for year in (30, 29, 71, 28, 27, 26, 25, 24, 23, 22, 21, 20))
    monkeypatch.setattr(ledger_module, "_now", lambda: next(days))
    ledger = Ledger(place, "d", "u", Budget(9.0))
    steps = ["first", "second", "third"]
    for step in steps:
        ledger.reserve(step, step, "run", Price(Measure.PURE, 1.0))
    ledger.close()
    smaller = Ledger(place, "d", "u", Budget(3.0))  # declared last, though the clock says earlier
    assert [entry.step for entry in smaller.entries()] == steps
    with pytest.raises(Exception, match=r"0 of ε=3 is left"):
        smaller.reserve("fourth", "fourth", "run", Price(Measure.PURE, 1.0))
    smaller.close()
    assert [row[0] for row in raw(place, "select epsilon from lifetime order by id")] == [9.0, 3.0]


def test_the_state_folder_is_another_one(new_town: NewTown, tmp_path: Path) -> None:
    town = new_town()
    assert town.run().startswith("done")
    booked = town.booked()
    secret = town.spec.parent / ".privbench" / "secret.key"
    secret.rename(tmp_path / "lost.key")
    ended = town.run()
    assert ended.startswith("ReleaseError: the ledger of town-0 belongs to another state folder")
    assert town.booked() == booked
    Workspace(load_spec(town.spec), new_state=True).close()
    assert town.run().startswith("done paid=0.0")
    assert town.booked() == booked + booked
    shutil.move(tmp_path / "lost.key", secret)
    with pytest.raises(ReleaseError, match="another state folder"):
        Workspace(load_spec(town.spec))


def test_the_ledger_is_another_one(new_town: NewTown, place: Place, tmp_path: Path) -> None:
    town = new_town()
    state = town.spec.parent / ".privbench"
    Workspace(load_spec(town.spec)).close()
    if isinstance(place, Path):
        shutil.copy(state / "ledger.sqlite", tmp_path / "old.sqlite")
    written = town.spec.read_text(encoding="utf-8")
    assert town.run().startswith("done")
    shutil.copytree(state, tmp_path / "newest")
    if isinstance(place, Path):  # an old copy
        for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
            (state / name).unlink(missing_ok=True)
        shutil.move(tmp_path / "old.sqlite", state / "ledger.sqlite")
    else:  # the spec names another place
        town.spec.write_text(written.replace(f"ledger: '{place}', ", ""), encoding="utf-8")
    ended = town.run()
    assert ended.startswith(
        f"LedgerError: the ledger of town-0 holds 0 reservations, but this state folder has seen {len(PAID)}:"
    )
    if isinstance(place, str):
        town.spec.write_text(written, encoding="utf-8")
        assert town.run() == "done paid=0"
    else:
        shutil.copytree(tmp_path / "newest", state, dirs_exist_ok=True)
        assert town.run() == "done paid=0"
        (state / "ledger.sqlite").unlink()
        Workspace(load_spec(town.spec), new_state=True).close()
        assert town.run().startswith(f"LedgerError: {town.out}: this bundle records that ε=0.8")
        assert not town.looked()
        elsewhere = Town(town.spec, town.out.with_name("elsewhere"))  # a total of its own, which adds up with that one
        assert elsewhere.run().startswith("done paid=0.")


def test_spending_is_deleted_beside_releases(new_town: NewTown, place: Place) -> None:
    town = new_town()
    assert town.run().startswith("done")
    state = town.spec.parent / ".privbench"
    if isinstance(place, str):  # the ledger's server was set up anew
        fresh = f"{place}_anew"
        raw(place, f"create schema {fresh.rpartition('=')[2]}")
        text = town.spec.read_text(encoding="utf-8").replace(place, fresh)
        town.spec.write_text(text, encoding="utf-8")
    for path in (*state.glob("ledger.sqlite*"), state / "secret.key", state / "town-0" / "RESERVATIONS"):
        path.unlink()
    shutil.rmtree(state / "spending")
    assert town.run().startswith("LedgerError: the ledger of town-0 is empty, but this state folder holds releases")
    assert not town.looked()


def test_the_state_folder_is_deleted_beside_a_bundle(new_town: NewTown, place: Place) -> None:
    town = new_town()
    assert town.run().startswith("done")
    shutil.rmtree(town.spec.parent / ".privbench")
    ended = town.run()
    if isinstance(place, Path):
        assert ended.startswith(f"LedgerError: {town.out}: this bundle records that ε=0.8")
    else:  # the ledger is there, and knows that it belongs to another folder
        assert ended.startswith("ReleaseError: the ledger of town-0 belongs to another state folder")
    assert not town.looked()


def test_two_runs_at_once_that_do_not_both_fit(new_town: NewTown) -> None:
    town = new_town(lifetime=1.2)
    spec = load_spec(town.spec)
    with closing(Workspace(spec)) as workspace, ExitStack() as at_work:
        at_work.enter_context(workspace.at_work("mark", "another run"))
        total = Budget(0.9, 1e-9).total()
        workspace.ledger.hold("the run at ε=0.9", total, "another purpose", "mark")
        ended = town.run()
        assert ended.startswith("BudgetExhaustedError: the run at ε=0.8: costs ")
        assert "but another run has held " in ended
        assert not town.looked()
        assert not town.booked()
        at_work.close()  # as when the process is killed
        assert town.run().startswith("done")


def test_the_page_lists_exactly_these_tests(request: pytest.FixtureRequest) -> None:
    listed = re.findall(r"^\|.*`(test_\w+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    here, deployed, ranges, memory = (_tests(path) for path in (Path(__file__), DEPLOYMENT, RANGES, MEMORY))
    assert len(listed) == len(set(listed))
    assert here - {request.function.__name__} == set(listed) & here
    assert set(listed) <= here | deployed | ranges | memory


def _tests(path: Path) -> set[str]:
    """Names of the tests in a file."""
    found = [
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)
    ]
    return {node.name for node in found if node.name.startswith("test_")}
