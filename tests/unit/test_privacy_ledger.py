"""The ledger: never more than the lifetime, whoever asks, however it ends."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from privbench_core.errors import BudgetError, BudgetExhaustedError
from privbench_core.privacy.budget import Budget, Measure, Price, rho_for
from privbench_core.privacy.ledger import Ledger

PURE, BOTH = Budget(2.0), Budget(2.0, 1e-6)
UNIT = "one row of household and all rows that depend on it"


def open_ledger(path: Path | str = ":memory:", lifetime: Budget = BOTH, unit: str = UNIT) -> Ledger:
    return Ledger(path, "town", unit, lifetime)


def test_the_shortfall_is_exact() -> None:
    ledger = open_ledger(lifetime=PURE)
    ledger.reserve("a", "first", "run", Price(Measure.PURE, 1.5))
    with pytest.raises(
        BudgetExhaustedError, match=r"second: costs ε=0\.75, 0\.5 of ε=2 is left, 0\.25 too little"
    ) as refused:
        ledger.reserve("b", "second", "run", Price(Measure.PURE, 0.75))
    assert refused.value.private_detail is None
    assert len(ledger.entries()) == 1
    ledger.reserve("b", "second", "run", Price(Measure.PURE, 0.5))
    assert ledger.balance().left == 0
    ledger.close()


def test_the_shortfall_is_exact_in_rho() -> None:
    ledger = open_ledger()
    cap = BOTH.total().amount
    ledger.reserve("a", "first", "run", Price(Measure.ZCDP, cap / 2))
    with pytest.raises(BudgetExhaustedError) as refused:
        ledger.reserve("b", "second", "run", Price(Measure.ZCDP, cap))
    assert f"{cap / 2:.6g} too little" in str(refused.value)
    assert f"ρ={cap / 2:.6g} of {cap:.6g}" in str(refused.value)
    ledger.close()


def test_a_pure_lifetime_pays_no_zcdp() -> None:
    ledger = open_ledger(lifetime=PURE)
    with pytest.raises(BudgetExhaustedError, match="pure"):
        ledger.reserve("a", "s", "run", Price(Measure.ZCDP, 1e-9))
    ledger.close()


def test_thresholds_delta_is_limited_too() -> None:
    ledger = open_ledger()
    ledger.reserve("a", "s", "run", Price(Measure.ZCDP, 1e-6, BOTH.total().delta))
    with pytest.raises(BudgetExhaustedError, match="δ"):
        ledger.reserve("b", "t", "run", Price(Measure.ZCDP, 1e-6, 1e-9))
    ledger.reserve("c", "u", "run", Price(Measure.ZCDP, 1e-6))
    ledger.close()


def test_pure_entries_count_in_full_among_zcdp_ones() -> None:
    ledger = open_ledger()
    cap = BOTH.total().amount
    ledger.reserve("a", "s", "run", Price(Measure.PURE, 2.0))  # all of ε, so ρ = 2: far above the cap
    assert ledger.balance().spent == 2.0
    with pytest.raises(BudgetExhaustedError):
        ledger.reserve("b", "t", "run", Price(Measure.ZCDP, 1e-9))
    with pytest.raises(BudgetExhaustedError):
        ledger.reserve("b", "t", "run", Price(Measure.PURE, 1e-3))
    ledger.close()
    other = open_ledger()
    other.reserve("a", "s", "run", Price(Measure.ZCDP, cap / 4))
    small = math.sqrt(2 * cap / 2)  # a pure ε worth half the cap
    other.reserve("b", "t", "run", Price(Measure.PURE, small))
    assert other.balance().rho_left == pytest.approx(cap / 4)
    with pytest.raises(BudgetExhaustedError):
        other.reserve("c", "u", "run", Price(Measure.PURE, small))
    other.close()


def test_the_unit_of_an_account_never_changes(tmp_path: Path) -> None:
    open_ledger(tmp_path / "ledger.sqlite").close()
    with pytest.raises(BudgetError, match=r"person.*do not add"):
        open_ledger(tmp_path / "ledger.sqlite", unit="one row of person")
    other = Ledger(tmp_path / "ledger.sqlite", "another", "one row of person", BOTH)
    assert other.balance().spent == 0
    other.close()


def test_a_changed_lifetime_is_written_down_and_counts(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    first = open_ledger(path, PURE)
    first.reserve("a", "s", "run", Price(Measure.PURE, 1.5))
    first.close()
    for lifetime in (Budget(1.0), Budget(1.0), Budget(5.0)):
        open_ledger(path, lifetime).close()
    with sqlite3.connect(path) as raw:
        declared = raw.execute("select epsilon, unit from lifetime order by id").fetchall()
    raw.close()
    assert declared == [(2.0, UNIT), (1.0, UNIT), (5.0, UNIT)]
    smaller = open_ledger(path, Budget(1.0))
    assert smaller.balance().left == 0
    with pytest.raises(BudgetExhaustedError):
        smaller.reserve("b", "t", "run", Price(Measure.PURE, 0.01))
    smaller.close()


def test_each_account_may_spend_the_whole_lifetime_and_no_more() -> None:
    ledger = open_ledger(lifetime=PURE)
    ledger.reserve("a", "s", "run", Price(Measure.PURE, 2.0))
    with pytest.raises(BudgetExhaustedError):
        ledger.require("t", Price(Measure.PURE, 0.5))
    ledger.require("t", Price(Measure.PURE, 0.5), "2027")
    ledger.reserve("b", "t", "run", Price(Measure.PURE, 1.5), "2027")
    with pytest.raises(BudgetExhaustedError, match=r"0\.5 of ε=2 is left"):
        ledger.reserve("c", "u", "run", Price(Measure.PURE, 1.0), "2027")
    assert ledger.balance().spent == 2.0
    assert ledger.balance("2027").spent == 1.5
    assert [(entry.step, entry.account) for entry in ledger.entries()] == [("s", ""), ("t", "2027")]
    assert [entry.step for entry in ledger.entries("2027")] == ["t"]
    assert [entry.step for entry in ledger.entries("")] == ["s"]
    ledger.close()


TAMPERING = [
    "delete from reservation",
    "delete from charge",
    "delete from lifetime",
    "update lifetime set epsilon = 1e9",
    "update charge set amount = 0",
    "update reservation set amount = 0",
    "update reservation set rho = 0",
    "update reservation set delta = 0",
    "update reservation set measure = 'zcdp'",
    "update reservation set database = 'elsewhere'",
    "update reservation set account = 'other'",
    "update reservation set release = 'other'",
    "update reservation set state = 'reserved'",
    "update reservation set state = 'released', amount = 0",
]


@pytest.mark.parametrize("statement", TAMPERING)
def test_nothing_is_deleted_or_repriced(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = open_ledger(path)
    done = ledger.reserve("a", "s", "run", Price(Measure.PURE, 1.0))
    ledger.charge(done, "s/view", Price(Measure.PURE, 1.0))
    ledger.release(done, "digest")
    ledger.close()
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.DatabaseError, match="append only"):
        raw.execute(statement)
    raw.close()
    again = open_ledger(path)
    assert again.balance().spent == 1.0
    assert again.released("a") == {"digest"}
    again.close()


def test_a_reservation_counts_as_spent_whether_or_not_it_is_released(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "ledger.sqlite", PURE)
    entry = ledger.reserve("a", "s", "run", Price(Measure.PURE, 1.0))
    assert ledger.balance().spent == 1.0
    assert ledger.released("a") == frozenset()
    ledger.release(entry, "digest")
    assert ledger.balance().spent == 1.0
    assert ledger.released("a") == {"digest"}
    assert [e.state for e in ledger.entries()] == ["released"]
    ledger.close()


def _race(folder: str, rounds: int, barrier: object, won: object) -> None:
    """One of two processes that want the last of each budget. Both even make the file."""
    for number in range(rounds):
        barrier.wait()  # type: ignore[attr-defined]
        ledger = open_ledger(Path(folder) / f"{number}.sqlite", PURE)
        barrier.wait()  # type: ignore[attr-defined]
        try:
            ledger.reserve("last", "s", str(os.getpid()), Price(Measure.PURE, 1.5))
            won.put(number)  # type: ignore[attr-defined]
        except BudgetExhaustedError:
            pass
        ledger.close()


def test_of_two_processes_exactly_one_gets_the_last_of_the_budget(tmp_path: Path) -> None:
    rounds = 12
    context = multiprocessing.get_context("spawn")
    barrier, won = context.Barrier(2), context.Queue()
    racers = [context.Process(target=_race, args=(str(tmp_path), rounds, barrier, won), daemon=True) for _ in range(2)]
    for racer in racers:
        racer.start()
    winners = sorted(won.get(timeout=60) for _ in range(rounds))
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    assert winners == list(range(rounds))
    assert won.empty()
    for number in range(rounds):
        ledger = open_ledger(tmp_path / f"{number}.sqlite", PURE)
        assert ledger.balance().spent == 1.5
        ledger.close()


SPENDER = """
import sys
from pathlib import Path
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]), "town", sys.argv[2], Budget(1e6))
while True:
    entry = ledger.reserve("r", "s", "run", Price(Measure.PURE, 0.5))
    ledger.charge(entry, "look", Price(Measure.PURE, 0.5))
    print(entry, flush=True)
    ledger.release(entry, "digest")
"""


@pytest.mark.parametrize("kills", [pytest.param(20, id="20"), pytest.param(200, marks=pytest.mark.slow, id="200")])
def test_a_killed_process_never_spends_without_a_trace(tmp_path: Path, kills: int) -> None:
    path = tmp_path / "ledger.sqlite"
    rng = np.random.default_rng(0)
    acknowledged: set[int] = set()
    for _ in range(kills):
        command = [sys.executable, "-c", SPENDER, str(path), UNIT]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as spender:
            assert spender.stdout is not None
            for _ in range(int(rng.integers(1, 12))):
                acknowledged.add(int(spender.stdout.readline()))
            spender.send_signal(signal.SIGKILL)
            acknowledged |= {
                int(line) for line in spender.stdout.read().splitlines(keepends=True) if line.endswith(b"\n")
            }
        ledger = open_ledger(path, Budget(1e6))
        entries = {entry.id for entry in ledger.entries()}
        assert acknowledged <= entries
        assert len(entries - acknowledged) <= kills
        assert ledger.balance().spent == 0.5 * len(entries) >= 0.5 * len(acknowledged)
        ledger.close()
    raw = sqlite3.connect(path)
    assert raw.execute("pragma integrity_check").fetchall() == [("ok",)]
    assert raw.execute(
        "select count(*) from charge where reservation not in (select id from reservation)"
    ).fetchone() == (0,)
    raw.close()


def test_the_cap_in_rho_is_that_of_the_lifetime() -> None:
    ledger = open_ledger()
    assert ledger.balance().rho_left == pytest.approx(rho_for(BOTH.epsilon, BOTH.delta - BOTH.total().delta))
    ledger.close()
