"""The audit of all that the parser accepts: no claim is exceeded, and a rule that is missing is found."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from privbench_core.backends import integrity
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema
from privbench_core.spec import rules_of_keys
from tests.audit import compare, databases, random_specs
from tests.audit.compare import Tally
from tests.audit.databases import audit_one

FEW, MANY = 150, 6_000  # specs drawn; a third is accepted


@pytest.mark.parametrize("specs", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_claim_is_exceeded(specs: int) -> None:
    tally = Tally()
    for number in range(specs):
        audit_one(7, number, tally)
    assert not tally.broken, "\n".join(tally.broken)
    assert tally.counts["specs accepted"] > specs / 5
    assert tally.counts["replays"] > specs / 50
    for mechanism in ("Marginal", "Marginal, clipped", "RankSums", "Distances", "threshold"):
        assert tally.largest[mechanism] > 0.999, "never reached: noise is wasted, or the audit looks at nothing"


def _nothing(*_: Any) -> Iterator[str]:
    yield from ()


def _exempting_same_unit(key: ForeignKey, schema: Schema) -> Iterator[str]:
    if (
        schema.table(key.child).row_id
        and not schema.table(key.parent).public
        and not key.cascades
        and not key.same_unit
    ):
        yield "once; so"


@pytest.mark.parametrize(
    ("rule", "without", "number"),
    [
        ("_row_ids", _exempting_same_unit, 2872),
        ("_changing_target", _nothing, 182),
        ("_cannot_be_null", _nothing, 190),
    ],
)
def test_a_missing_rule_is_found(rule: str, without: Any, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these rules was missing once, and what it keeps out moves further than is claimed."""
    monkeypatch.setattr(rules_of_keys, rule, without)
    tally = Tally()
    audit_one(0, number, tally)
    assert tally.broken


def test_rows_that_orphans_take_with_them_along_keys_that_let_go_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a row stays in the neighbour that lacks the row it refers to, so it must stay in the whole database too."""
    right = "table.columns_set_null(key)"
    source = inspect.getsource(integrity._cascade)
    assert right in source
    wrong = source.replace(right, "() if key.cascades else table.emptied_columns(key)")
    names = dict(vars(integrity))
    exec(compile("from __future__ import annotations\n" + wrong, "wrong", "exec"), names)
    monkeypatch.setattr(integrity, "_cascade", names["_cascade"])
    monkeypatch.delitem(random_specs._ATTRIBUTES, "documents")  # else 428 is another spec
    tally = Tally()
    audit_one(0, 428, tally)
    assert tally.broken


def test_groups_without_children_have_no_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where noise leaves no parent with children, PrivLava's EM has no groups; it failed, after the step was paid."""
    monkeypatch.setattr(compare, "_OPTIONS", ({"latents": 2, "usefulness": 0.01, "iterations": 2},))
    monkeypatch.setattr(databases, "compare_views", lambda *_: None)
    monkeypatch.setattr(databases, "_REPLAYED", 2.0)
    tally = Tally()
    audit_one(1, 296, tally)
    assert tally.counts["replays"] > 0
    assert not tally.broken
