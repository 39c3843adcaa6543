"""Processes for tests, forked from one that has imported everything: a start costs a hundredth of an interpreter's."""

from __future__ import annotations

import multiprocessing

# The product imports them where it uses them, that is, in each child.
_LIBRARIES = ("duckdb", "opendp.prelude", "pandas", "scipy.optimize", "scipy.sparse", "scipy.special")

PROCESSES = multiprocessing.get_context("forkserver")
# Each child runs the main module again, which is pytest.
PROCESSES.set_forkserver_preload(["pytest", "tests.helpers.faults", "tests.unit.test_privacy_ledger", *_LIBRARIES])
