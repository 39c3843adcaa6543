"""docs/glossary.md: every name in its third column is one of the code."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import privbench_core

PAGE = Path(__file__).parents[2] / "docs" / "glossary.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| term")
]


def holds(owner: object, name: str) -> bool:
    """Whether an object has an attribute, or a dataclass a field, of that name."""
    return hasattr(owner, name) or (is_dataclass(owner) and name in {field.name for field in fields(owner)})


def exists(name: str) -> bool:
    """Whether a dotted name is a module of the package, something in one, or of the public API."""
    path = name.split(".")
    known = [count for count in range(len(path), 0, -1) if is_module(".".join(path[:count]))]
    owner: object = import_module(f"privbench_core.{'.'.join(path[: known[0]])}") if known else privbench_core
    for part in path[known[0] if known else 0 :]:
        if not holds(owner, part):
            return False
        owner = getattr(owner, part, None)
    return True


def is_module(name: str) -> bool:
    try:
        return find_spec(f"privbench_core.{name}") is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_names_exist(row: list[str]) -> None:
    for name in re.findall(r"`([^`]+)`", row[2]):
        assert exists(name), name
