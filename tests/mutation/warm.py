"""Runs of pytest in forks of one process that has imported the libraries, so that a bug costs little but its tests.

Most of a short test run is the import of libraries, and those are the same with every bug. Modules of the project are
imported in the fork alone, from the copy, with the bug in them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

_LIBRARIES = (
    "pytest",
    "hypothesis.strategies",
    "numpy",
    "scipy.stats",
    "scipy.optimize",
    "scipy.sparse",
    "pandas",
    "pyarrow.parquet",
    "duckdb",
    "opendp.prelude",
    "sqlglot",
    "sqlalchemy",
    "psycopg",
    "yaml",
    "faker",
    "networkx",
    "jinja2",
)
_PATIENCE = 3600.0  # seconds for the named tests of one file: the slowest took 1,061 beside twenty other programs
_OPTIONS = ("-q", "-x", "--tb=line", "-p", "no:cacheprovider", "-p", "no:cov", "-p", "no:xdist")
# Libraries that are there before pytest do not get their assertions rewritten, which is nothing to us.
_OPTIONS += (
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
    "--hypothesis-seed=0",
    "--hypothesis-profile=no-shrinking",
)
_FAILED = 1  # pytest's exit code for "tests ran, and some failed"; all others say that they could not run
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (tests/\S+::\S+)", re.MULTILINE)


class Warm:
    """A process that waits in a copy of the project."""

    def __init__(self, process: subprocess.Popen[str], scratch: Path) -> None:
        self._process = process
        self._scratch = scratch

    def first_failure(self, tests: Sequence[str]) -> str | None:
        """Run ``tests`` up to the first that fails; return its name, None if all pass.

        Raises:
            AssertionError: They could not be run, so nothing is known.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        log = self._scratch / "log.txt"
        arguments = [*_OPTIONS, f"--basetemp={self._scratch / 'tests'}", *tests]
        self._process.stdin.write(json.dumps([str(log), arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        said = log.read_text(encoding="utf-8", errors="replace")
        failed = _FAILURE.search(said)
        # A crash of Python itself has the exit code of a failed test, so only a test by its name will do.
        ran = answer.strip() == str(0 if failed is None else _FAILED)
        assert ran, f"pytest could not run {' '.join(tests)} ({answer.strip()}):\n{said[-4000:]}"
        return None if failed is None else failed[1]


@contextmanager
def warm(copy: Path) -> Iterator[Warm]:
    """The process for one copy of the project."""
    scratch = copy.parent / "scratch"
    scratch.mkdir()
    environment = os.environ | {"PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "tests.mutation.warm"]
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Warm(process, scratch)
        assert process.stdin is not None
        process.stdin.close()  # ends it


def _serve() -> None:
    """Answer each line, the name of a log and arguments for pytest, by the exit code of a fork that ran it."""
    for name in _LIBRARIES:
        import_module(name)
    for line in sys.stdin:
        log, arguments = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(log, arguments)
        sys.stdout.write(f"{_exit_code(child)}\n")
        sys.stdout.flush()


def _run(log: str, arguments: list[str]) -> None:
    """Run pytest, and end this process with its exit code."""
    import pytest

    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = int(pytest.main(arguments))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # without the ends of what the parent had opened


def _exit_code(child: int) -> int:
    """Wait for a fork; a negative number is the signal that ended it."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, 9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    _serve()
