"""Whatever stands where in a spec file: it loads, or every problem is a sentence. Never another exception."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privbench_core.errors import SpecError
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.spec.yaml_io import read_yaml, write_yaml

SHOP = """
database: shop
source: data
synthesizer: {name: privbench, options: {beta: 5}}
schedule: "0 3 * * 1"
state: here
enums: {mood: [calm, cross]}
privacy: {unit: customer, delta: 1e-9, epsilons: [0.8], lifetime: {epsilon: 20, delta: 1e-8},
  refresh: {epsilon: 2, times: 9}, cohort: a}
owners: [team:data]
tables:
  customer:
    primary_key: id
    unique: [[age, at]]
    comment: them
    checks: [{name: grown, expression: age >= 18}]
    indexes: [{name: by age, columns: [age, kind]}]
    dependencies: [{determinant: kind, dependent: [age]}]
    foreign_keys: [{columns: region, references: {table: region, columns: code}, optional: true}]
    columns:
      id: integer
      region: {type: text, max_length: 9}
      age: {type: integer, domain: {min: 0, max: 120, cells: 60}, nullable: true}
      kind: {type: category, domain: {values: [a, b]}}
      feels: {type: category, sql_type: mood, default: "'calm'"}
      mail: {type: text, domain: {faker: email}, sql_type: varchar(20), comment: how to reach them}
      plate: {type: text, domain: {pattern: "[A-Z]+"}}
      stay: {type: interval, domain: {min: PT0S, max: P1D}}
      number: {type: integer, identity: true, domain: learn}
      at: {type: timestamp, domain: {min: 2000-01-01, max: 2030-12-31}}
  order:
    primary_key: [customer, line]
    foreign_keys: [{columns: customer, references: customer, max_children: 10, on_orphan: drop, owner: true}]
    columns: {customer: integer, line: integer, price: {type: decimal, precision: 8, scale: 2, domain: learn}}
  region: {public: true, primary_key: code, columns: {code: text}}
"""
BASE, _ = read_yaml(SHOP)
ODD = st.sampled_from(
    [None, [], {}, "", 0, -1, True, 1.5, "x", "CHOOSE", "~nobody", "\0", ["a"], [[1]], [None], [{}], {"a": 1},
     {"a": {"b": [1]}}, "customer", "order", "learn", "integer", float("inf"), float("nan"), 10**30, "a/b", [[], {}]]
)  # fmt: skip


def places(content: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in inside:
        yield (*here, key)
        yield from places(value, (*here, key))


def load(content: Any) -> Spec:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        path.write_text(write_yaml(content), encoding="utf-8")
        return load_spec(path)


def test_the_base_is_right() -> None:
    assert load(BASE).schema.unit == "customer"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(list(places(BASE))), ODD), min_size=1, max_size=3))
def test_mistakes_anywhere_are_problems(mistakes: list[tuple[tuple[Any, ...], Any]]) -> None:
    content = copy.deepcopy(BASE)
    for place, value in mistakes:
        if place in set(places(content)):  # an earlier mistake may have taken it away
            node = content
            for key in place[:-1]:
                node = node[key]
            node[place[-1]] = copy.deepcopy(value)
    with suppress(SpecError):
        load(content)


def test_a_missing_part_is_a_problem() -> None:
    for place in list(BASE):
        content = {key: value for key, value in BASE.items() if key != place}
        if place in {"database", "source", "privacy", "tables"}:
            with pytest.raises(SpecError, match=f"^spec: {place} is missing"):
                load(content)
        elif place == "enums":
            with pytest.raises(SpecError, match=r"^customer\.feels: sql_type is 'mood'"):
                load(content)
        else:
            assert load(content).schema == load(BASE).schema
