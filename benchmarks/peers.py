"""Optional peers from the dpmm package (PrivBayes, MST, AIM), for whoever has an interpreter with it.

dpmm pins numpy 1.26, pandas 2.1 and opendp 0.12, so it cannot live in the project's environment. Make one for it, with
Python 3.10 or 3.11, and say where: ``PRIVBENCH_DPMM_PYTHON=.../bin/python python -m benchmarks adult --methods mst``.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.measure import Codes, Fit, fit_in_child
from privbench_core.errors import SourceError

DPMM_METHODS = ("privbayes", "mst", "aim")
_SCRIPT = Path(__file__).with_name("dpmm_child.py")


def fit_dpmm(
    method: str, codes: Codes, sizes: list[int], ordered: list[bool], parameters: dict[str, float | int]
) -> Fit:
    """Fit and sample with one of `DPMM_METHODS`; ``parameters`` are epsilon, delta and seed.

    Raises:
        SourceError: No interpreter with dpmm is named in the environment.
    """
    python = os.environ.get("PRIVBENCH_DPMM_PYTHON")
    if not python:
        raise SourceError(f"{method}: set PRIVBENCH_DPMM_PYTHON to a Python 3.10 or 3.11 that has dpmm installed")
    return fit_in_child([python, str(_SCRIPT), method], codes, sizes, ordered, dict(parameters))
