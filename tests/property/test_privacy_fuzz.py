"""Random schemas, views and neighbours: no unit moves a view further than its claimed stability."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from privbench_core.privacy.features import CoMember
from privbench_core.privacy.queries import Marginal, Query, RankSums
from privbench_core.privacy.relations import is_set_null_across_units
from privbench_core.privacy.view_building import build_references, build_view
from privbench_core.privacy.views import CodedView
from privbench_core.spec.rules_of_keys import find_key_problems
from tests.helpers.networks import network, random_scale, random_view

FEW, MANY = 300, 10_000
_NEIGHBOURS = 3  # per database
_VIEWS = 4  # per neighbour


@dataclass
class Tightness:
    """How far units moved, over what was claimed.

    Attributes:
        compared: Neighbours that were compared, by claimed stability: 1, or more.
        largest: The largest share of the claim, likewise.
        reached: How often the whole claim was reached, likewise.
    """

    compared: Counter[str] = field(default_factory=Counter)
    largest: dict[str, float] = field(default_factory=dict)
    reached: Counter[str] = field(default_factory=Counter)

    def note(self, kind: str, share: float) -> None:
        """Count one neighbour."""
        self.compared[kind] += 1
        self.largest[kind] = max(share, self.largest.get(kind, 0.0))
        self.reached[kind] += share > 1 - 1e-3  # weights are rounded down


def _kind(view: CodedView, whole: int) -> str:
    return "stability 1" if view.stability == whole else "stability above 1"


def _share(asked: Query, one: CodedView, other: CodedView, where: object) -> float:
    """How far a query moves, over its claim: the larger of L1 and L2; both claims hold."""
    shift = (asked.evaluate(one) - asked.evaluate(other)).astype(float)
    assert asked.moves(one) == asked.moves(other), f"the claim depends on the rows: {where}"
    l1, l2_squared = asked.moves(one)
    moved = np.abs(shift).sum() / l1, (shift**2).sum() ** 0.5 / l2_squared**0.5
    assert max(moved) <= 1 + 1e-9, where
    return float(max(moved))


def _groups(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    return np.unique(rng.integers(0, 3, size), return_inverse=True)[1]


def _compare(number: int, found: Tightness) -> None:
    """Compare a random database with some neighbours, in some views each."""
    rng, of_scales = np.random.default_rng(number), np.random.default_rng([number, 1])
    database = network(rng)
    schema = database.schema
    assert find_key_problems(schema) == [], "not a schema that a spec can declare"
    every, private = database.all_units(), database.private()
    for _ in range(_NEIGHBOURS):
        gone = every[int(rng.integers(len(every)))]
        smaller = database.without(gone[1], gone[0]).private()
        for _ in range(_VIEWS):
            spec = random_view(rng, schema)
            one, other = build_view(private, spec), build_view(smaller, spec)
            names = list(rng.permutation([*spec.features]))[: int(rng.integers(1, 4))]
            asked = Marginal(tuple(map(str, names)))
            share = _share(asked, one, other, (number, gone, spec, names))
            tuples = any(isinstance(feature, CoMember) for feature, _ in spec.features.values())
            kind = _kind(one, one.weight_scale * spec.rows_per_unit[-1])
            kind = "bounded" if spec.bounded else kind
            found.note(f"{kind}, tuples" if tuples else kind, share)
            if one.clipped:
                groups = tuple(_groups(rng, one.sizes[name]) for name in asked.columns) if rng.random() < 0.5 else ()
                clipped = Marginal(asked.columns, groups, clipped=True)
                found.note(f"{kind}, clipped", _share(clipped, one, other, (number, gone, spec, names, groups)))
                if one.weight_scale > 1:
                    numbers = [int(of.max()) + 1 for of in groups] or [one.sizes[name] for name in asked.columns]
                    scaled = replace(clipped, scales=tuple(random_scale(of_scales, codes) for codes in numbers))
                    found.note(f"{kind}, scaled", _share(scaled, one, other, (number, gone, spec, names, scaled)))
        for key in (k for t in schema.tables for k in t.foreign_keys):
            most = int(rng.choice([1, 2, 8]))
            one, other = build_references(private, key, most), build_references(smaller, key, most)
            ranks = RankSums((1, 2, 3, 5, 100))
            found.note("ranks", _share(ranks, one, other, (number, gone, key, most)))
            if is_set_null_across_units(schema, key):
                bound = int(rng.integers(1, 4))
                one, other = (build_references(each, key, most, bound) for each in (private, smaller))
                found.note("ranks, bounded", _share(ranks, one, other, (number, gone, key, most, bound)))


@pytest.mark.parametrize("databases", [FEW // _NEIGHBOURS, pytest.param(MANY // _NEIGHBOURS, marks=pytest.mark.slow)])
def test_no_unit_moves_a_view_beyond_its_stability(databases: int, record_property: pytest.RecordProperty) -> None:
    found = Tightness()
    for number in range(databases):
        _compare(number, found)
    for kind, number in found.compared.items():
        report = f"{number} compared, at most {found.largest[kind]:.3f}, {found.reached[kind] / number:.0%} in full"
        record_property(kind, report)
        print(f"{kind}: {report}")  # noqa: T201 - shown with -s
    assert found.largest["stability 1"] > 0.999, "never reached: noise is wasted, or the test looks at nothing"
    assert found.largest["stability 1, tuples"] > 0.999
    assert found.largest["stability above 1"] > 0.3
    assert found.largest["ranks"] > 0.999
    assert found.largest["bounded"] > 0.4
    assert found.largest["ranks, bounded"] > 0.3
    assert found.largest["stability 1, clipped"] > 0.999
    assert found.largest["stability above 1, clipped"] > 0.3
    assert found.largest["stability 1, scaled"] > 0.999
    assert found.largest["stability above 1, scaled"] > 0.3
