"""The options of the synthesizers: the documentation lists each of them with its default, and each has an effect."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from privbench_core.errors import SpecError
from privbench_core.privacy.budget import Budget
from privbench_core.synthesizers import privbench, privlava, privpetal, privspn
from privbench_core.synthesizers.contract import load_synthesizer
from privbench_core.synthesizers.options import FidelityOptions
from privbench_core.synthesizers.relational import plan as relational
from tests.helpers.databases import shop

_ROW = re.compile(r"^\| (`.+?`) \| (.+?) \| ", re.MULTILINE)


def documented(name: str) -> dict[str, str]:
    """Options and their defaults in the table of docs/spec_reference.md that is headed by ``name``."""
    text = (Path(__file__).parents[2] / "docs" / "spec_reference.md").read_text(encoding="utf-8")
    table = text.partition(f"| {name} | default | |\n")[2].partition("\n\n")[0]
    found: dict[str, str] = {}
    for names, defaults in _ROW.findall(table):
        found |= dict(zip(re.findall(r"`(\w+)`", names), defaults.split(", "), strict=True))
    return found


OPTIONS: dict[str, type[Any]] = {
    "privbench": privbench.SharedOptions,
    "privspn": privspn.Options,
    "privpetal": privpetal.Options,
    "privlava": privlava.Options,
    "relational": relational.Options,
}


@pytest.mark.parametrize(("name", "options"), [("all", FidelityOptions), *OPTIONS.items()])
def test_the_documentation_has_every_option_and_its_default(name: str, options: type[Any]) -> None:
    common = {field.name for field in fields(FidelityOptions)} if name != "all" else set()
    defaults = {field.name: field.default for field in fields(options) if field.name not in common}
    found = documented(name)
    assert found.keys() == defaults.keys()
    for option, default in defaults.items():
        assert type(default)(found[option]) == default, option


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_changes_what_steps_cost_or_release(name: str) -> None:
    budget, schema = Budget(1.0, 1e-6), shop(0).schema

    def identity(options: dict[str, Any]) -> list[object]:
        plan = load_synthesizer(name).plan(schema, budget, options)
        total = sum(step.price.amount for step in plan.steps)
        assert total == pytest.approx(budget.total().amount, rel=1e-9), "the whole budget is planned"
        return [(step.key, step.price, sorted(step.parameters.items())) for step in plan.steps]

    default = identity({})
    for field in fields(OPTIONS[name]):
        value = field.default
        other = "independent" if isinstance(value, str) else value + 1 if isinstance(value, int) else value * 0.7
        assert identity({field.name: other}) != default, field.name


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("privlava", {"latent": 1}, "did you mean 'latents'"),
        ("privlava", {"latents": 0}, "less than 1"),
        ("privlava", {"iterations": 0}, "less than 1"),
        ("privlava", {"types": 1}, "share strictly between 0 and 1"),
        ("privpetal", {"members": -1}, "not a number of at least 0"),
        ("privpetal", {"usefulness": "much"}, "not a number"),
        ("privpetal", {"links": float("inf")}, "not a number"),
        ("relational", {"tables": "none"}, "'none' is not one of"),
    ],
)
def test_options_are_checked(name: str, given: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        OPTIONS[name].parse(given)
