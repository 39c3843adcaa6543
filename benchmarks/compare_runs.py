"""Makes and judges the runs of `compare`: states of the code as copies, and processes that run each with its own code.

A worker judges what makers make, one maker per state. Workers take the runs of one database side by side, so that each
reads it once; all sides of one seed come together, so that a stopped comparison has pairs.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from queue import Empty
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from benchmarks.compare_figures import Judge, tree_fingerprint
from benchmarks.paired import Cell, Side
from privbench_core.errors import PrivbenchError

PROJECT = Path(__file__).resolve().parents[1]
_NEEDED = ("privbench_core", "benchmarks", "tests/helpers")
_MAKER = Path("benchmarks") / "compare_maker.py"
_IN_MEMORY = Path("/dev/shm")  # synthetic tables pass through it, and no disk
_STOP = None
SHUFFLED = Side("columns shuffled")
"""No code: the source with the columns of each table shuffled, which a worker judges like what makers make."""
_PATIENCE = 5.0  # seconds between looks whether workers still live


@dataclass(frozen=True)
class Checkout:
    """A copy of a state of the code.

    Attributes:
        label: As it was asked for.
        folder: Where the copy lies.
        fingerprint: Of the sources of privbench_core.
    """

    label: str
    folder: Path
    fingerprint: str

    @classmethod
    def of(cls, what: str | None, folder: Path) -> Checkout:
        """Copy a folder or a git revision, by default this checkout as it is, so that edits do not reach the runs.

        Raises:
            PrivbenchError: It is neither a checkout nor a revision.
        """
        place = PROJECT if what is None else Path(what)
        folder.mkdir(parents=True)
        if (place / "privbench_core").is_dir():
            for name in _NEEDED:
                if (place / name).is_dir():
                    shutil.copytree(place / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            _extract(str(what), folder)
        return cls(what or "this checkout", folder, tree_fingerprint(folder, ["privbench_core"]))

    @property
    def maker(self) -> Path:
        """The script that makes synthetic databases: its own, or this checkout's where it is older than that."""
        own = self.folder / _MAKER
        return own if own.exists() else PROJECT / _MAKER


def _extract(revision: str, folder: Path) -> None:
    """Write what is needed of a git revision of this project to ``folder``."""
    command = ["git", "-C", str(PROJECT), "archive", "--format=tar", revision, *_NEEDED]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise PrivbenchError(f"{revision}: neither the folder of a checkout nor a revision of this project ({said})")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


@dataclass(frozen=True)
class Group:
    """Runs that differ by the state of the code alone.

    Attributes:
        spec: The file of the prepared database.
        cell: What they are of.
        sides: The states to run.
    """

    spec: Path
    cell: Cell
    sides: tuple[Side, ...]


@dataclass(frozen=True)
class Finished:
    """A run.

    Attributes:
        side: The state of the code.
        cell: What it is of.
        found: Figures by name, and ``seconds`` and ``peak_mb``; empty if it failed.
        error: Why it failed.
    """

    side: Side
    cell: Cell
    found: Mapping[str, float]
    error: str = ""


def seed_of(cell: Cell) -> int:
    """The seed of a run's noise and samples: another one for each database, so that their changes are independent."""
    own = f"{cell.database}\x1f{cell.seed}".encode()
    return int.from_bytes(blake2b(own, digest_size=4).digest(), "little")


class Maker:
    """A process with the code of one checkout, which makes synthetic databases on demand."""

    def __init__(self, checkout: Checkout) -> None:
        environment = os.environ | {
            "PYTHONPATH": str(checkout.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(checkout.maker)],
            cwd=checkout.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def make(self, group: Group, off: Sequence[str], folder: Path) -> dict[str, Any]:
        """Write the tables of a run to ``folder``; returns the maker's answer, see `compare_maker`."""
        cell = group.cell
        asked = {
            "spec": str(group.spec),
            "epsilon": cell.epsilon,
            "delta": cell.delta,
            "seed": seed_of(cell),
            "synthesizer": cell.synthesizer,
            "off": list(off),
            "out": str(folder),
        }
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
            said = self._process.stdout.readline()
        except BrokenPipeError:
            said = ""
        if not said:
            return {"error": f"the process of the checkout ended with code {self._process.wait()}"}
        return dict(json.loads(said))

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


class Workers:
    """Processes that take groups of runs and give what they finish.

    Args:
        checkouts: By fingerprint.
        number: Of processes, each at one run at a time.
    """

    def __init__(self, checkouts: Mapping[str, Checkout], number: int) -> None:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the processes that start from here
        context = multiprocessing.get_context("spawn")
        self._groups, self._finished = context.Queue(), context.Queue()
        place = _IN_MEMORY if _IN_MEMORY.is_dir() else None
        self._place = TemporaryDirectory(dir=place, prefix="privbench-compare-", ignore_cleanup_errors=True)
        given = (dict(checkouts), Path(self._place.name), self._groups, self._finished)
        self._processes = [context.Process(target=_work, args=given, daemon=True) for _ in range(number)]
        self._asked = 0
        for process in self._processes:
            process.start()

    def give(self, group: Group) -> None:
        """Have a group run."""
        self._asked += len(group.sides)
        self._groups.put(group)

    def finished(self, *, wait: bool) -> Iterator[Finished]:
        """Yield what has finished, in whatever order; with ``wait``, all that is to come.

        Raises:
            PrivbenchError: A worker has died.
        """
        while self._asked:
            try:
                yield self._finished.get(timeout=_PATIENCE if wait else 0.0)
            except Empty:
                if not all(process.is_alive() for process in self._processes):
                    raise PrivbenchError("compare: a worker has died; what had finished is in the results") from None
                if not wait:
                    return
            else:
                self._asked -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in self._processes:
            self._groups.put(_STOP)
        for process in self._processes:
            if error is not None:
                process.terminate()
            process.join()
        self._place.cleanup()


def _work(checkouts: Mapping[str, Checkout], place: Path, groups: Any, finished: Any) -> None:
    """Run groups until there are none; the process that started this one ends it where somebody interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)
    makers: dict[str, Maker] = {}
    judge: Judge | None = None
    judged: Path | None = None
    while (group := groups.get()) is not _STOP:
        if group.spec != judged:
            for maker in makers.values():
                maker.close()  # with the rows of the database before
            makers, judged = {}, group.spec
            judge = Judge(group.spec)
        for side in group.sides:
            if side == SHUFFLED:
                finished.put(Finished(side, group.cell, judge.of_shuffled(seed_of(group.cell))))
                continue
            if side.code not in makers:
                makers[side.code] = Maker(checkouts[side.code])
            finished.put(_run(group, side, makers[side.code], judge, place))
    for maker in makers.values():
        maker.close()
    finished.close()
    finished.join_thread()
    os._exit(0)  # what libraries still have running has nothing to say


def _run(group: Group, side: Side, maker: Maker, judge: Judge, place: Path) -> Finished:
    with TemporaryDirectory(dir=place) as folder:
        answer = maker.make(group, [name for name in side.off.split("+") if name], Path(folder))
        if "error" in answer:
            return Finished(side, group.cell, {}, answer["error"])
        made = {}
        for file in Path(folder).glob("*.arrow"):
            with pa.memory_map(str(file)) as source:
                made[file.stem] = pa.ipc.open_file(source).read_all()
        try:
            return Finished(side, group.cell, {**judge.figures(made), **answer})
        except Exception as error:  # noqa: BLE001 - one run that cannot be judged is no reason to lose the others
            return Finished(side, group.cell, {}, f"{type(error).__name__}: {error}")
