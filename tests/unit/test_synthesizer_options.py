"""The options of the synthesizers: the documentation lists each of them with its default."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from privbench_core.synthesizers import privbench, privlava, privpetal, privspn
from privbench_core.synthesizers.options import FidelityOptions
from privbench_core.synthesizers.relational import plan as relational

_ROW = re.compile(r"^\| (`.+?`) \| (.+?) \| ", re.MULTILINE)


def documented(name: str) -> dict[str, str]:
    """Options and their defaults in the table of docs/spec_reference.md that is headed by ``name``."""
    text = (Path(__file__).parents[2] / "docs" / "spec_reference.md").read_text(encoding="utf-8")
    table = text.partition(f"| {name} | default | |\n")[2].partition("\n\n")[0]
    found: dict[str, str] = {}
    for names, defaults in _ROW.findall(table):
        found |= dict(zip(re.findall(r"`(\w+)`", names), defaults.split(", "), strict=True))
    return found


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("all", FidelityOptions),
        ("privbench", privbench.SharedOptions),
        ("privspn", privspn.Options),
        ("privpetal", privpetal.Options),
        ("privlava", privlava.Options),
        ("relational", relational.Options),
    ],
)
def test_the_documentation_has_every_option_and_its_default(name: str, options: type[Any]) -> None:
    common = {field.name for field in fields(FidelityOptions)} if name != "all" else set()
    defaults = {field.name: field.default for field in fields(options) if field.name not in common}
    found = documented(name)
    assert found.keys() == defaults.keys()
    for option, default in defaults.items():
        assert type(default)(found[option]) == default, option
