"""Reservations per second on one ledger that several processes want at once, in SQLite and in PostgreSQL."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from benchmarks.report import machine, markdown, medians
from privbench_core.backends.postgres.temporary import temporary_postgres
from privbench_core.errors import InternalError
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.ledger.postgres import PostgresStore
from privbench_core.privacy.ledger.sqlite import SqliteStore
from privbench_core.spec.model import EqualRefreshes, RefreshPolicy

PROCESSES = 8
EACH = 200
LONG = 10_000
_PRICE = Price(Measure.PURE, 1 / 64)  # a power of two, so that the total is exact
_LIFETIME = Budget(1e6)
_POLICY = EqualRefreshes(1e6, times=LONG)


@dataclass(frozen=True)
class _Setting:
    """How many want the ledger at once, whether a refresh policy is to be kept, and how long the ledger is already."""

    processes: int
    policy: RefreshPolicy | None = None
    before: int = 0


_KEYS = ["ledger", "processes", "refresh policy", "entries before"]
_SETTINGS = (_Setting(1), _Setting(PROCESSES), _Setting(PROCESSES, _POLICY), _Setting(PROCESSES, _POLICY, LONG))


def run(*, seeds: int, progress: Callable[[str], None]) -> str:
    """The table: each place, with one process and with all of them, with a refresh policy, and when it is long."""
    rows: list[dict[str, str | float]] = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder, temporary_postgres() as server:
            places = {"SQLite": Path(folder) / "ledger.sqlite", "PostgreSQL": server.url}
            for (kind, place), setting in product(places.items(), _SETTINGS):
                about = {
                    "ledger": kind,
                    "processes": setting.processes,
                    "refresh policy": "yes" if setting.policy else "no",
                    "entries before": setting.before,
                }
                progress(f"{', '.join(f'{name}: {value}' for name, value in about.items())}, run {seed + 1}")
                rows.append({**about, **_measured(place, setting)})
    return f"{machine(seeds)}\n\n{markdown(medians(rows, _KEYS))}"


def _measured(place: Path | str, setting: _Setting) -> dict[str, float]:
    name = str(setting)
    Ledger(place, name, "u", _LIFETIME).close()  # makes the tables
    _lengthen(place, name, setting.before)
    context = multiprocessing.get_context("spawn")
    barrier, done = context.Barrier(setting.processes + 1), context.Queue()
    workers = [
        context.Process(target=_reserve, args=(place, name, setting.policy, barrier, done), daemon=True)
        for _ in range(setting.processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = time.perf_counter()
    longest = max(done.get(timeout=600) for _ in workers)
    seconds = time.perf_counter() - start
    for worker in workers:
        worker.join()
    ledger = Ledger(place, name, "u", _LIFETIME)
    spent, number = ledger.balance().spent, ledger.count() - setting.before
    ledger.close()
    if number != setting.processes * EACH or spent != (setting.before + number) * _PRICE.amount:
        raise InternalError(f"{number} entries of ε={spent} after {setting.processes * EACH} reservations")
    return {
        "reservations": number,
        "total ε (exact)": spent,
        "reservations / s": number / seconds,
        "longest wait s": longest,
    }


def _lengthen(place: Path | str, name: str, entries: int) -> None:
    """Enter what refreshes of fifty tables at six ε would have left, without a transaction for each."""
    if not entries:
        return
    store = PostgresStore(place) if isinstance(place, str) else SqliteStore(place)
    with store.transaction():
        store.query(
            "with recursive number(i) as (select 0 union all select i + 1 from number where i + 1 < ?)"
            " insert into reservation(database, account, release, step, run, measure, amount, rho, delta, at)"
            " select ?, '', 'r' || i, 'step ' || (i / 200), 'run ' || (i / 34 - i / 204 * 6), 'pure', ?, ?, 0, ''"
            " from number",
            (entries, name, _PRICE.amount, _PRICE.rho),
        )
        of_all = "select id, '', '' from reservation where database = ?"
        store.query(f"insert into result(reservation, digest, at) {of_all}", (name,))
    store.close()


def _reserve(place: Path | str, name: str, policy: RefreshPolicy | None, barrier: Barrier, done: Any) -> None:
    ledger = Ledger(place, name, "u", _LIFETIME, policy)
    barrier.wait()
    longest = 0.0
    for number in range(EACH):
        start = time.perf_counter()
        ledger.reserve(f"r{number}", "step", "run", _PRICE)
        longest = max(longest, time.perf_counter() - start)
    done.put(longest)
    ledger.close()
