"""Peers, each in an environment of its own, whose interpreter an environment variable names.

``PRIVBENCH_PEERS_PYTHON``: dpmm 0.1.9 (PrivBayes, MST, AIM), which pins numpy 1.26 and opendp 0.12. `make .venv/.peers`
installs it into ``.venv/peers``, with anonymeter (see `attacks`). ``PRIVBENCH_DPSYNTH_PYTHON``: google/dpsynth
(McKenna and others: AIM with Gaussian noise only, MST, SWIFT of 2026, and several tables), which is in no registry: a
checkout on the path, with jax 0.11, mbi, dp-accounting and etils[epath]. ``PRIVBENCH_SDV_PYTHON``: sdv (HMA). What
is not there is left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Arrays, Codes, Fit, fit_of, run_in_child
from privbench_core.errors import SourceError

DPMM_METHODS = ("privbayes", "mst", "aim")
DPSYNTH_METHODS = ("dpsynth AIM", "dpsynth MST", "dpsynth SWIFT")
TABLES_METHODS = ("dpsynth, its example", "dpsynth, with one-way marginals", "SDV HMA")
_DPMM = "PRIVBENCH_PEERS_PYTHON"
_VARIABLES = {
    "dpsynth": "PRIVBENCH_DPSYNTH_PYTHON",
    "SDV": "PRIVBENCH_SDV_PYTHON",
}
_INSTALLED = Path(__file__).resolve().parents[1] / ".venv" / "peers" / "bin" / "python"


def installed() -> tuple[str, ...]:
    """Return the methods that an interpreter here has."""
    return tuple(
        method for method in (*DPMM_METHODS, *DPSYNTH_METHODS, *TABLES_METHODS) if _interpreter(method).is_file()
    )


def run_peer(method: str, given: Arrays, parameters: Mapping[str, Any], limit: float | None = None) -> Arrays:
    """Fit and sample with a peer for at most ``limit`` seconds of processor time; see `peer_child` and `run_in_child`.

    Raises:
        SourceError: There is no interpreter with the method.
        NotFinishedError: The limit was reached.
        PrivbenchError: The peer failed, or refused.
    """
    command = [str(python_of_peers(method)), "-m", "benchmarks.peer_child", method]
    return run_in_child(command, given, parameters, limit)


def fit_peer(
    method: str,
    codes: Codes,
    sizes: list[int],
    ordered: list[bool],
    parameters: Mapping[str, float | int],
    limit: float | None = None,
) -> Fit:
    """`run_peer` on one table: one of `DPMM_METHODS` or `DPSYNTH_METHODS`, which know of no order.

    ``parameters`` are epsilon, delta and seed.
    """
    given = {"codes": codes, "sizes": np.array(sizes), "ordered": np.array(ordered)}
    return fit_of(run_peer(method, given, parameters, limit))


def python_of_peers(method: str) -> Path:
    """Return the interpreter that has what privbench is compared with.

    Raises:
        SourceError: There is none.
    """
    python = _interpreter(method)
    if not python.is_file():
        how = "`make .venv/.peers` installs it" if python == _INSTALLED else "see benchmarks/peers.py"
        raise SourceError(f"{method}: there is no {python} ({_variable(method)}); {how}")
    return python


def _variable(method: str) -> str:
    return next((variable for name, variable in _VARIABLES.items() if method.startswith(name)), _DPMM)


def _interpreter(method: str) -> Path:
    variable = _variable(method)
    return Path(os.environ.get(variable, _INSTALLED if variable == _DPMM else f"${variable}"))
