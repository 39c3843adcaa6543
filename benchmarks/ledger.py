"""Reservations per second on one ledger that several processes want at once, in SQLite and in PostgreSQL."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from benchmarks.report import machine, markdown, medians
from privbench_core.errors import InternalError
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.ledger import Ledger

PROCESSES = 8
EACH = 200
_PRICE = Price(Measure.PURE, 1 / 64)  # a power of two, so that the total is exact


def run(*, seeds: int, progress: Callable[[str], None]) -> str:
    """The table: each place, with one process and with all of them."""
    from pgserver.postgres_server import get_server  # an extra

    rows: list[dict[str, str | float]] = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)  # the server runs as a user of its own
            with get_server(Path(folder) / "pg", cleanup_mode="stop") as server:
                places = {"SQLite": Path(folder) / "ledger.sqlite", "PostgreSQL": str(server.get_uri())}
                for kind, place in places.items():
                    for processes in (1, PROCESSES):
                        progress(f"ledger: {kind}, {processes} processes, run {seed + 1}")
                        rows.append({"ledger": kind, "processes": processes, **_measured(place, processes)})
    return f"{machine(seeds)}\n\n{markdown(medians(rows, ['ledger', 'processes']))}"


def _measured(place: Path | str, processes: int) -> dict[str, float]:
    name = f"{processes} at once"
    context = multiprocessing.get_context("spawn")
    barrier, done = context.Barrier(processes + 1), context.Queue()
    workers = [
        context.Process(target=_reserve, args=(place, name, barrier, done), daemon=True) for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = time.perf_counter()
    longest = max(done.get(timeout=600) for _ in workers)
    seconds = time.perf_counter() - start
    for worker in workers:
        worker.join()
    ledger = Ledger(place, name, "u", Budget(1e6))
    spent, number = ledger.balance().spent, len(ledger.entries())
    ledger.close()
    if number != processes * EACH or spent != number * _PRICE.amount:
        raise InternalError(f"{number} entries of ε={spent} after {processes * EACH} reservations")
    return {
        "reservations": number,
        "total ε (exact)": spent,
        "reservations / s": number / seconds,
        "longest wait s": longest,
    }


def _reserve(place: Path | str, name: str, barrier: Barrier, done: Any) -> None:
    ledger = Ledger(place, name, "u", Budget(1e6))
    barrier.wait()
    longest = 0.0
    for number in range(EACH):
        start = time.perf_counter()
        ledger.reserve(f"r{number}", "step", "run", _PRICE)
        longest = max(longest, time.perf_counter() - start)
    done.put(longest)
    ledger.close()
