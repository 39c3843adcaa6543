"""Peers from the packages dpmm (PrivBayes, MST, AIM) and dpsynth, each in an environment of its own.

dpmm pins numpy 1.26, pandas 2.1 and opendp 0.12. ``make bench`` installs it into ``.venv/peers``, with anonymeter (see
`attacks`); another interpreter with them can be named: ``PRIVBENCH_PEERS_PYTHON=.../bin/python``.

dpsynth (McKenna and others: AIM with Gaussian noise only, MST, SWIFT of 2026) is in no package registry. An interpreter
that can import it is named by ``PRIVBENCH_DPSYNTH_PYTHON``; without one it is left out.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.measure import Codes, Fit, fit_in_child
from privbench_core.errors import SourceError

DPMM_METHODS = ("privbayes", "mst", "aim")
DPSYNTH_METHODS = {"dpsynth AIM": "aim", "dpsynth MST": "mst", "dpsynth SWIFT": "swift"}
_SCRIPT, _DPSYNTH_SCRIPT = (Path(__file__).with_name(f"{name}_child.py") for name in ("dpmm", "dpsynth"))
_DPSYNTH = "PRIVBENCH_DPSYNTH_PYTHON"
_INSTALLED = Path(__file__).resolve().parents[1] / ".venv" / "peers" / "bin" / "python"


def installed() -> tuple[str, ...]:
    """Return the methods that an interpreter here has."""
    return (*(DPMM_METHODS if _python().exists() else ()), *(DPSYNTH_METHODS if _DPSYNTH in os.environ else ()))


def fit_peer(
    method: str,
    codes: Codes,
    sizes: list[int],
    ordered: list[bool],
    parameters: dict[str, float | int],
    limit: float | None = None,
) -> Fit:
    """Fit and sample with one of `DPMM_METHODS` or `DPSYNTH_METHODS`; they know of no order.

    ``parameters`` are epsilon, delta and seed; ``limit`` is in seconds of processor time.

    Raises:
        SourceError: There is no interpreter with the method.
        NotFinishedError: The limit was reached.
    """
    if method in DPSYNTH_METHODS:
        command = [os.environ[_DPSYNTH], str(_DPSYNTH_SCRIPT), DPSYNTH_METHODS[method]]
    else:
        command = [str(python_of_peers(method)), str(_SCRIPT), method]
    return fit_in_child(command, codes, sizes, ordered, dict(parameters), limit)


def python_of_peers(wanted: str) -> Path:
    """Return the interpreter that has what privbench is compared with.

    Raises:
        SourceError: There is none.
    """
    python = _python()
    if not python.exists():
        raise SourceError(
            f"{wanted}: there is no {python}; `make .venv/.peers` installs it (PRIVBENCH_PEERS_PYTHON: another)"
        )
    return python


def _python() -> Path:
    return Path(os.environ.get("PRIVBENCH_PEERS_PYTHON", _INSTALLED))
