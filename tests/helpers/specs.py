"""Spec files of tests: written, loaded, and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from privbench_core.errors import SpecError
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import Spec


def load(folder: Path, text: str) -> Spec:
    """The spec of a file that holds ``text``; it is the same when it is dumped and loaded."""
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    spec = load_spec(path)
    path.write_text(dump_spec(spec), encoding="utf-8")
    assert load_spec(path) == spec
    return spec


def problems(folder: Path, text: str) -> tuple[str, ...]:
    """What `load` refuses; every line says where, what and what to do."""
    with pytest.raises(SpecError) as caught:
        load(folder, text)
    assert all(": " in line and "; " in line for line in caught.value.problems)
    return caught.value.problems


def explained(folder: Path, text: str, expected: str) -> None:
    """One of the `problems` begins like that."""
    found = problems(folder, text)
    assert any(line.startswith(expected) for line in found), "\n".join(found)


def changed(text: str, old: str, new: str) -> str:
    """``text`` with the one ``old`` in it replaced."""
    assert text.count(old) == 1, old
    return text.replace(old, new)
