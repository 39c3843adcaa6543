"""Draw one random database after the other, and audit each."""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import monotonic

import numpy as np

from privbench_core.errors import SourceError
from tests.audit.compare import Tally, compare_views, replay_plan
from tests.audit.random_rows import draw_rows
from tests.audit.random_specs import accepted, draw_spec

_REPLAYED = 0.25  # of the databases


def audit_one(seed: int, number: int, tally: Tally) -> None:
    """Draw a spec; if the parser accepts it, draw rows and compare everything with its claims."""
    rng = np.random.default_rng([seed, number])
    tally.counts["specs drawn"] += 1
    with tempfile.TemporaryDirectory() as folder:
        spec = accepted(draw_spec(rng), Path(folder) / "spec.yaml")
    if spec is None:
        return
    tally.counts["specs accepted"] += 1
    drawn = draw_rows(rng, spec)
    try:
        compare_views(rng, drawn, tally, number)
        if rng.random() < _REPLAYED:
            replay_plan(rng, drawn, tally, number)
    except SourceError as error:  # what the spec declares holds in the whole database
        tally.broken.append(f"{error}, in a neighbour of {number}")


def audit(seed: int, first: int, stride: int, seconds: float) -> Tally:
    """Return what was found in every ``stride``-th database from ``first`` on, until the time is over."""
    tally, end, number = Tally(), monotonic() + seconds, first
    while monotonic() < end:
        try:
            audit_one(seed, number, tally)
        except Exception as error:  # noqa: BLE001 - a run that fails is a finding, and the audit goes on
            tally.broken.append(f"{type(error).__name__}: {error}, in {number}")
        number += stride
    return tally
