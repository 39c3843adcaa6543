"""Locks: one at a time, given back whatever happens, and nobody waits for ever."""

from __future__ import annotations

import os
from multiprocessing.pool import ThreadPool
from pathlib import Path
from time import sleep

import pytest

from privbench_core import files
from privbench_core.errors import BusyError, SpecError
from privbench_core.files import VARIABLE, exclusive, is_locked


def test_one_at_a_time_and_nothing_is_left(tmp_path: Path) -> None:
    path, inside = tmp_path / "made" / "lock", []

    def work(_: int) -> None:
        with exclusive(path, "it"):
            inside.append(1)
            assert len(inside) == 1
            sleep(0.001)
            inside.pop()

    with ThreadPool(4) as pool:
        pool.map(work, range(24))
    assert list(path.parent.iterdir()) == []


def test_the_wait_ends_names_who_is_there_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "0.3")
    monkeypatch.setattr(files, "_WARN_AFTER", 0.1)
    with (
        exclusive(tmp_path / "lock", "one"),
        pytest.raises(BusyError, match=r"^the other: process \d+ on .* more than 0.3 s"),
        exclusive(tmp_path / "lock", "the other"),
    ):
        pytest.fail("both were let in")
    with exclusive(tmp_path / "lock", "it is free"):
        (said,) = caplog.messages
    assert said.startswith(f"the other: waiting for process {os.getpid()} on ")
    assert said.endswith("for at most 0.3 s")


def test_a_wait_that_is_no_number_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "an hour")
    with pytest.raises(SpecError, match="'an hour' is not a number of seconds"), exclusive(tmp_path / "lock", "it"):
        pytest.fail("it was let in")


def test_a_lock_is_seen_from_outside_and_what_a_killed_process_left_is_none(tmp_path):
    path = tmp_path / "lock"
    assert not is_locked(path)
    with exclusive(path, "it"):
        assert is_locked(path)
    assert not is_locked(path)
    path.write_text("process 1 on a machine that is gone", encoding="utf-8")
    assert not is_locked(path)
