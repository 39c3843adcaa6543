"""Runs of peers are kept by rows, method, budget and seed, and tried again only where more time may help."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.kept import KeptRuns, PeerRun


def test_a_run_is_found_again_for_the_same_rows_budget_and_seed_alone(tmp_path: Path) -> None:
    codes, path = np.arange(12).reshape(6, 2), tmp_path / "peers.json"
    kept = KeptRuns.of("small", codes, path)
    assert kept.get("mst", 0.2, 1e-5, 0) is None
    kept.keep("mst", 0.2, 1e-5, 0, PeerRun(0.25))
    kept.keep("aim", 0.2, 1e-5, 0, PeerRun(None, 120.0))
    again = KeptRuns.of("small", codes.astype(np.int32), path)
    assert again.get("mst", 0.2, 1e-5, 0) == PeerRun(0.25)
    assert again.get("aim", 0.2, 1e-5, 0) == PeerRun(None, 120.0)
    for other in (("mst", 0.8, 1e-5, 0), ("mst", 0.2, 0.0, 0), ("mst", 0.2, 1e-5, 1), ("privbayes", 0.2, 1e-5, 0)):
        assert again.get(*other) is None
    assert KeptRuns.of("small", codes + 1, path).get("mst", 0.2, 1e-5, 0) is None
    assert KeptRuns.of("small", codes.reshape(2, 6), path).get("mst", 0.2, 1e-5, 0) is None


def test_a_run_that_ended_is_settled_and_one_that_did_not_only_up_to_its_limit() -> None:
    assert PeerRun(0.1).settles(1e9)
    assert PeerRun(None, 120.0).settles(120.0)
    assert not PeerRun(None, 120.0).settles(600.0)
