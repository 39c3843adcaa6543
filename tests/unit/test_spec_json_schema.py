"""The published JSON Schema of a spec: editors complete and check by it what `load_spec` then checks in full."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from privbench_core.spec.forms import json_schema
from privbench_core.spec.yaml_io import read_yaml

ROOT = Path(__file__).parents[2]
SCHEMA = json_schema()
_SHOWN = (ROOT / "docs/spec_reference.md").read_text(encoding="utf-8")
WHOLE = re.search(r"## The whole file\n\n```yaml\n(.*?)```", _SHOWN, re.DOTALL)


def documented() -> str:
    """Return the spec file that docs/spec_reference.md shows."""
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
        ("    primary_key: code", "    primary_key: code\n    row_id: generated"),
    ],
)
def test_mistakes_do_not_fit(right, wrong):
    assert right in documented()
    assert problems(documented().replace(right, wrong)) != []


def test_editors_get_it_from_a_command():
    command = [sys.executable, "-m", "privbench_core.spec.forms"]
    assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout) == SCHEMA
