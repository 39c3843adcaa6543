"""A seeded privacy bug, and how one is put into a copy of the packages and shot at."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
_COPIED = ("privbench_core", "privbench_assets", "benchmarks", "tests", "pyproject.toml", "dagster.yaml")
_FAILED = 1  # pytest's exit code for "tests ran, and some failed"; all others say that they could not run
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (tests/\S+::\S+)", re.MULTILINE)
_SECONDS = count(1_000_000_000)
_PATIENCE = 1200.0  # seconds


@dataclass(frozen=True)
class Mutant:
    """One bug that would break the guarantee, or the trust in it.

    Attributes:
        name: Unique, for test ids.
        kind: What it breaks: a section of the page.
        bug: In words.
        file: Below ``privbench_core/``.
        old: Text that stands in the file once.
        new: What the bug makes of it.
        tests: Arguments for pytest: the fast tests, at least one of which must fail.
    """

    name: str
    kind: str
    bug: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, source: str) -> str:
        """Return the module's text with the bug in it.

        Raises:
            ValueError: The text to change is not there exactly once: the code has moved on, and so must the mutant.
        """
        found = source.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: its text stands in privbench_core/{self.file} {found} times, not once")
        return source.replace(self.old, self.new)

    @property
    def path(self) -> Path:
        """The module, relative to the project."""
        return Path("privbench_core") / self.file


def copy_of_the_project(folder: Path) -> Path:
    """Copy all that the fast tests need, so that bugs never touch the real files."""
    for name in _COPIED:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    for name in ("examples", "docs", "deploy", "README.md"):
        (folder / name).symlink_to(PROJECT / name)
    return folder


def write_module(path: Path, text: str) -> None:
    """Replace a module's text, with a time of its own: Python takes bytecode of the same time and size for the same."""
    path.write_text(text, encoding="utf-8")
    second = next(_SECONDS)
    os.utime(path, (second, second))


def first_failure(copy: Path, tests: tuple[str, ...]) -> str | None:
    """Run ``tests`` in the copy up to the first that fails; return its name, None if all pass.

    Raises:
        AssertionError: They could not be run, so nothing is known.
    """
    environment = os.environ | {"PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
    command += [f"--basetemp={copy.parent / 'scratch'}", *tests]
    done = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=False
    )
    failed = _FAILURE.search(done.stdout)
    # A crash of Python itself has the exit code of a failed test, so only a test by its name will do.
    ran = done.returncode == (0 if failed is None else _FAILED)
    assert ran, f"pytest could not run {' '.join(tests)}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return None if failed is None else failed[1]
