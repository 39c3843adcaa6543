"""Numbers that decide figures stand in `tuning`, those that only bound arithmetic in `guards`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from privbench_core import guards, tuning

PRODUCT = Path(guards.__file__).parent
PACKAGES = ("estimators", "marginals", "units", "profiles", "links", "groups", "sampling", "columns")


def _numeric_constants(module: Path) -> Iterator[str]:
    """Yield the module if it binds names to numbers, or to expressions of numbers alone."""
    for statement in ast.parse(module.read_text(encoding="utf-8")).body:
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
            continue
        parts = list(ast.walk(statement.value))
        numbers = [part for part in parts if isinstance(part, ast.Constant) and type(part.value) in {int, float}]
        named = any(isinstance(part, (ast.Name, ast.Attribute, ast.Call, ast.Dict)) for part in parts)
        if numbers and not named:
            yield module.relative_to(PRODUCT).as_posix()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_has_numbers_of_its_own(package: str):
    found = {name for module in sorted((PRODUCT / package).rglob("*.py")) for name in _numeric_constants(module)}
    assert not found


def test_tuning_is_part_of_what_identifies_a_release():
    changed = tuning.Tuning(**{fields(tuning.Tuning)[0].name: 0.123})
    assert changed.fingerprint != tuning.TUNING.fingerprint
