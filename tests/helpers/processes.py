"""Processes for tests, forked from one that has imported everything: a start costs a hundredth of an interpreter's."""

from __future__ import annotations

import multiprocessing

PROCESSES = multiprocessing.get_context("forkserver")
# Each child runs the main module again, which is pytest.
PROCESSES.set_forkserver_preload(["pytest", "tests.helpers.faults", "tests.unit.test_privacy_ledger"])
