"""The published JSON Schema of a spec: editors complete and check by it what `load_spec` then checks in full."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from privbench_core.spec.fields import Node
from privbench_core.spec.load import load_spec
from privbench_core.spec.yaml_io import read_yaml

ROOT = Path(__file__).parents[2]
SCHEMA: dict[str, Any] = json.loads((files("privbench_core.spec") / "spec.schema.json").read_text(encoding="utf-8"))
_SHOWN = (ROOT / "docs/spec.md").read_text(encoding="utf-8")
WHOLE = re.search(r"## The whole file\n\n```yaml\n(.*?)```", _SHOWN, re.DOTALL)


def documented() -> str:
    """Return the spec file that docs/spec.md shows."""
    assert WHOLE is not None
    return WHOLE[1]


def problems(text: str) -> list[str]:
    """Return what the JSON Schema finds wrong in a spec."""
    content, _ = read_yaml(text)
    plain = json.loads(json.dumps(content, default=str))
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(plain)]


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("text", [documented(), (ROOT / "examples/households/spec.yaml").read_text(encoding="utf-8")])
def test_specs_that_load_fit_the_schema(text):
    assert problems(text) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("primary_key: id", "primary_keys: id"),
        ("type: category, sql_type: mood", "type: categry, sql_type: mood"),
        ("max_children: 50", "max_kids: 50"),
        ("  unit: customer", "  units: customer"),
    ],
)
def test_mistakes_do_not_fit(right, wrong):
    assert right in documented()
    assert problems(documented().replace(right, wrong)) != []


def test_the_schema_knows_the_keys_that_the_reader_knows(tmp_path, monkeypatch):
    """Every list of keys that the reader accepts is the list of some object in the schema."""
    seen: set[frozenset[str]] = set()
    only = Node.only

    def noted(self: Node, *known: str) -> None:
        seen.add(frozenset(known))
        only(self, *known)

    monkeypatch.setattr(Node, "only", noted)
    path = tmp_path / "spec.yaml"
    path.write_text(documented(), encoding="utf-8")
    load_spec(path)
    objects: list[frozenset[str]] = []

    def collect(part: Any) -> None:
        if isinstance(part, dict):
            if "properties" in part:
                objects.append(frozenset(part["properties"]))
            if "anyOf" in part:
                objects.append(frozenset().union(*(form.get("properties", ()) for form in part["anyOf"])))
            for inner in part.values():
                collect(inner)
        elif isinstance(part, list):
            for inner in part:
                collect(inner)

    collect(SCHEMA)
    assert len(seen) > 10
    assert seen <= set(objects)
