"""Run a method in a process of its own, so that its peak memory is its own and nothing is warm from the run before.

python -m benchmarks.measure MODULE:FUNCTION FOLDER     (what `fit_target_in_child` starts)
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.errors import PrivbenchError

Codes = NDArray[np.integer]
Arrays = Mapping[str, NDArray[Any]]
Fit = tuple[Codes, float, float, float]
"""Synthetic codes, seconds to learn, seconds to sample, peak memory of the process in MB."""

Method = Callable[[Codes, list[int], list[bool], float, float, int], Fit]
"""``method(codes, sizes, ordered, epsilon, delta, seed)``."""

_PROJECT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Runs:
    """What a benchmark runs, and how often.

    Attributes:
        seeds: Runs per figure.
        epsilons: Budgets.
        deltas: 0 is pure differential privacy; None leaves them to the data, see `at`.
        progress: Called with a line before each run.
    """

    seeds: int
    epsilons: Sequence[float]
    deltas: Sequence[float] | None = None
    progress: Callable[[str], None] = print

    def at(self, *deltas: float) -> Runs:
        """The same at these δ, if none are chosen yet."""
        return replace(self, deltas=deltas) if self.deltas is None else self

    @property
    def budgets(self) -> tuple[tuple[float, float], ...]:
        """Each δ with each ε."""
        return tuple(product(self.deltas or (), self.epsilons))


def call_in_child(target: str, arguments: dict[str, Any]) -> tuple[Any, float]:
    """Call ``MODULE:FUNCTION`` with JSON-able keyword arguments in a new process.

    Returns:
        Its JSON-able result, and the peak memory of the process in MB.

    Raises:
        PrivbenchError: The process failed; the end of its stderr is in the message.
    """
    with TemporaryDirectory() as folder:
        (Path(folder) / "arguments.json").write_text(json.dumps(arguments), encoding="utf-8")
        run_child([sys.executable, "-m", "benchmarks.measure", target, folder])
        answer = json.loads((Path(folder) / "answer.json").read_text(encoding="utf-8"))
    return answer["result"], answer["peak_mb"]


class NotFinishedError(PrivbenchError):
    """A process was stopped at its limit of processor time."""


def run_in_child(
    command: Sequence[str], given: Arrays, parameters: Mapping[str, Any], limit: float | None = None
) -> Arrays:
    """Start ``command FOLDER``, which reads ``in.npz`` and ``parameters.json`` there and writes ``out.npz``.

    ``limit`` is in seconds of processor time.

    Returns:
        What is in ``out.npz``: at least seconds_learn, seconds_sample and peak_mb.

    Raises:
        NotFinishedError: The limit was reached.
        PrivbenchError: The process failed.
    """
    with TemporaryDirectory() as folder:
        np.savez(Path(folder) / "in.npz", **given)
        (Path(folder) / "parameters.json").write_text(json.dumps(parameters), encoding="utf-8")
        run_child([*command, folder], limit)
        with np.load(Path(folder) / "out.npz") as out:
            return dict(out)


def fit_of(out: Arrays) -> Fit:
    """Return what a method of one table has written."""
    return out["codes"], float(out["seconds_learn"]), float(out["seconds_sample"]), float(out["peak_mb"])


def fit_target_in_child(
    target: str, codes: Codes, sizes: list[int], ordered: list[bool], parameters: dict[str, Any]
) -> Fit:
    """Call ``MODULE:FUNCTION``, which returns (codes, seconds to learn, seconds to sample), in a new process."""
    given = {"codes": codes, "sizes": np.array(sizes), "ordered": np.array(ordered)}
    return fit_of(run_in_child([sys.executable, "-m", "benchmarks.measure", target], given, parameters))


def run_child(command: Sequence[str], limit: float | None = None) -> None:
    """Run a command in the project folder for at most ``limit`` seconds of processor time (Linux): of all its threads.

    Raises:
        NotFinishedError: It was stopped then.
        PrivbenchError: It failed; the end of its stderr is in the message.
    """
    with subprocess.Popen(command, cwd=_PROJECT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        if limit is not None:
            resource.prlimit(child.pid, resource.RLIMIT_CPU, (round(limit), resource.RLIM_INFINITY))
        _, said = child.communicate()
    if child.returncode == -signal.SIGXCPU:
        raise NotFinishedError(f"not finished in {limit:g} s of processor time")
    if child.returncode:
        raise PrivbenchError(f"{' '.join(command[1:4])} failed:\n{said.strip()[-2000:]}")


def peak_mb() -> float:
    """Peak resident memory of this process (Linux).

    Not getrusage: its figure survives exec, so a child would start with the peak of its parent.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found.group(1)) / 1024 if found else float("nan")


def reset_peak() -> None:
    """Let `peak_mb` and `children` start again from what this process and its children hold now (Linux)."""
    for process in ("self", *_children()):
        with suppress(OSError):
            Path(f"/proc/{process}/clear_refs").write_text("5", encoding="ascii")


@contextmanager
def disk_growth(*folders: Path) -> Iterator[Callable[[], float]]:
    """Look every second how large folders are; yields what tells the most bytes that were added to them."""
    before, ended = sum(map(_bytes_in, folders)), threading.Event()
    most = 0

    def look() -> None:
        nonlocal most
        while not ended.wait(1):
            most = max(most, sum(map(_bytes_in, folders)) - before)

    watch = threading.Thread(target=look, daemon=True)
    watch.start()
    try:
        yield lambda: most
    finally:
        ended.set()
        watch.join()


def _bytes_in(folder: Path) -> int:
    """Bytes on the disk that the files below a folder take."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # a temporary file that has just gone
                total += os.lstat(Path(place, name)).st_blocks * 512  # what st_blocks counts
    return total


def children() -> dict[str, tuple[float, float]]:
    """Seconds of CPU time so far, and peak resident memory in MB, of each child process by its number (Linux)."""
    found = {}
    for process in _children():
        with suppress(OSError):
            times = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
            peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(encoding="ascii"))
            seconds = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
            found[process] = seconds, int(peak.group(1)) / 1024 if peak else float("nan")
    return found


def _children() -> list[str]:
    found: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that has just ended
            found += (task / "children").read_text().split()
    return found


def _main(target: str, folder: Path) -> None:
    module, function = target.split(":")
    method = getattr(import_module(module), function)
    if (folder / "arguments.json").exists():
        result = method(**json.loads((folder / "arguments.json").read_text(encoding="utf-8")))
        (folder / "answer.json").write_text(json.dumps({"result": result, "peak_mb": peak_mb()}), encoding="utf-8")
        return
    with np.load(folder / "in.npz") as given:
        codes, sizes, ordered = given["codes"], given["sizes"].tolist(), given["ordered"].tolist()
    parameters = json.loads((folder / "parameters.json").read_text(encoding="utf-8"))
    synthetic, learn, sample = method(codes, sizes, ordered, **parameters)
    np.savez(folder / "out.npz", codes=synthetic, seconds_learn=learn, seconds_sample=sample, peak_mb=peak_mb())


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]))
