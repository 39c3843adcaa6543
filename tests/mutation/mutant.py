"""A seeded privacy bug, and how one is put into a copy of the packages."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
_COPIED = ("privbench_core", "privbench_assets", "benchmarks", "tests", "pyproject.toml", "dagster.yaml")
_SECONDS = count(1_000_000_000)


@dataclass(frozen=True)
class Mutant:
    """One bug that would break the guarantee, or the trust in it.

    Attributes:
        name: Unique, for test ids.
        bug: In words.
        file: Below ``privbench_core/``, or that of ``privbench_assets/`` with the folder's name.
        old: Text that stands in the file once.
        new: What the bug makes of it.
        tests: Arguments for pytest: the fast tests, at least one of which must fail. They run in this order.
    """

    name: str
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
            raise ValueError(f"{self.name}: its text stands in {self.path} {found} times, not once")
        return source.replace(self.old, self.new)

    @property
    def path(self) -> Path:
        """The module, relative to the project."""
        return Path(self.file) if self.file.startswith("privbench_assets/") else Path("privbench_core") / self.file


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
