"""Messages about mistakes in a spec: our reader beside the same rules as Pydantic models.

The design asked for Pydantic unless errors get worse by it. This is how much worse: one mistake at a time in a small
spec; whether it is found, how many lines it takes to say so, and whether any of them says what to do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmarks.report import markdown
from privbench_core.errors import SpecError
from privbench_core.spec.load import load_spec
from privbench_core.spec.yaml_io import read_yaml

_RIGHT = {
    "column": "{type: integer, domain: {min: 0, max: 9}}",
    "privacy": "{unit: t, delta: 0, epsilons: [1], lifetime: {epsilon: 5}}",
}
_MISTAKES = {
    "column": [
        "{type: intger, domain: {min: 0, max: 9}}",
        "{type: integer, domian: {min: 0, max: 9}}",
        "{type: integer, domain: {min: 0}}",
        "{type: integer, domain: {min: zero, max: 9}}",
        "{type: integer, domain: {min: 9, max: 0}}",
        "{type: integer, domain: {min: 0, max: 9, cells: 0}}",
        "{type: integer, domain: {min: 0, max: 9}, nullable: maybe}",
        "{type: integer, domain: CHOOSE}",
        "{type: category, domain: {values: []}}",
        "{type: category, domain: lern}",
        "{type: float, domain: {values: [1.5]}}",
        "{type: uuid, domain: learn}",
        "{type: decimal, domain: {min: 0, max: 1}}",
        "{type: date, domain: {min: 2020-02-30, max: 2021-01-01}}",
    ],
    "privacy": [
        "{unit: t, delta: -1, epsilons: [1], lifetime: {epsilon: 5}}",
        "{unit: t, delta: 0, epsilons: [], lifetime: {epsilon: 5}}",
        "{unit: t, delta: 0, epsilons: [1], lifetime: much}",
        "{unit: t, delta: 0, epsilon: [1], lifetime: {epsilon: 5}}",
    ],
}
_SPEC = """\
database: d
source: .
privacy: {privacy}
tables:
  t: {{primary_key: id, columns: {{id: integer, x: {column}}}}}
"""
_Positive = Annotated[int, Field(ge=1)]
_Delta = Annotated[float, Field(ge=0, lt=1)]
_Scalar = int | float | str | bool
_Type = Literal[
    *("integer", "decimal", "float", "boolean", "date", "timestamp", "category", "text", "timestamptz"),
    *("interval", "uuid", "bytes", "json"),
]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Range(_Model):
    min: _Scalar
    max: _Scalar
    cells: _Positive | None = None
    step: _Scalar | None = None


class _Values(_Model):
    values: Annotated[list[_Scalar], Field(min_length=1)]


class _Column(_Model):
    type: _Type
    domain: _Range | _Values | Literal["learn"] | None = None
    nullable: bool = False
    precision: _Positive | None = None
    scale: Annotated[int, Field(ge=0)] | None = None


class _Lifetime(_Model):
    epsilon: Annotated[float, Field(gt=0)]
    delta: _Delta | None = None


class _Privacy(_Model):
    unit: str
    delta: _Delta
    epsilons: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)]
    lifetime: _Lifetime | float


class _Table(_Model):
    primary_key: str | list[str]
    columns: dict[str, _Column | _Type]


class _Spec(_Model):
    database: str
    source: str
    privacy: _Privacy
    tables: dict[str, _Table]


def _ours(text: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            load_spec(path)
        except SpecError as error:
            return str(error).splitlines()
    return []


def _pydantic(text: str) -> list[str]:
    try:
        _Spec.model_validate(read_yaml(text)[0])
    except ValidationError as error:
        return [f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()]
    return []


def run() -> str:
    """Return the table of both readers."""
    specs = [_SPEC.format(**{**_RIGHT, part: wrong}) for part, mistakes in _MISTAKES.items() for wrong in mistakes]
    readers: dict[str, Callable[[str], list[str]]] = {"privbench": _ours, "Pydantic models": _pydantic}
    rows = []
    for name, read in readers.items():
        found = [read(text) for text in specs]
        rows.append(
            {
                "reader": name,
                "mistakes": len(specs),
                "found": sum(map(bool, found)),
                "lines": sum(map(len, found)),
                "say what to do": sum(any("; " in line for line in lines) for lines in found),
            }
        )
    return markdown(rows)
