"""Types of groups: what the definition says, group by group, in any order of rows, whatever units there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from privbench_core.columns.group_codes import ALONE, DIFFERENT, SAME, place_codes
from privbench_core.engines.memory import PrivateDatabase
from privbench_core.engines.stored import keyed_order
from privbench_core.privacy.features import GroupTypes, MemberPlace, Own, OwnerType, OwnType, SiblingAgreement
from privbench_core.privacy.view_building import build_view
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.constraints import ForeignKey
from tests.helpers.databases import Database
from tests.helpers.networks import AGREEMENT, PLACE, TYPE, X, network, random_types

_DATABASES = 60


def slow_types(database: Database, private: PrivateDatabase, key: ForeignKey, types: GroupTypes) -> list[Any]:
    """Latent values of each parent's group, by the definition, row by row."""
    kept, parents = private.kept(key.child), private.parent_rows(key)
    values = [0] * len(kept)
    of_columns: list[tuple[list[int], Any]] = []
    for source, coder, scores in types.columns:
        if isinstance(source, Own):
            codes = list(coder.encode(private.column(key.child, source.column)))
        else:
            codes = [value[source.latent] for value in slow_types(database, private, source.key, source.types)]
        of_columns.append((codes, scores))
    found = []
    for parent in range(database.tables[key.parent].num_rows):
        rows = [row for row in range(len(values)) if kept[row] and parents[row] == parent]
        if not rows:
            found.append((0,) * len(types.shape))
            continue
        size: Any = np.array([len(rows)])
        total = [int(score) for score in types.size_scores[types.sizes.encode_numbers(size)[0]]]
        for codes, scores in of_columns:
            for row in rows:
                total = [sum(pair) for pair in zip(total, map(int, scores[codes[row]]), strict=True)]
        best = total.index(max(total))
        found.append(tuple(1 + int(n) for n in np.unravel_index(best, [size - 1 for size in types.shape])))
    return found


def owner_keys(database: Database) -> list[ForeignKey]:
    return [table.owner_key for table in database.schema.tables if table.owner_key is not None]


def shown(private: PrivateDatabase, key: ForeignKey, types: GroupTypes, latent: int) -> tuple[list[int], list[int]]:
    """What views of the parent and of the child show, of kept rows."""
    above = build_view(private, ViewSpec(key.parent, {"t": (OwnType(key, types, latent), TYPE)}))
    below = build_view(private, ViewSpec(key.child, {"t": (OwnerType(key, types, latent), TYPE)}))
    return above.codes["t"].tolist(), below.codes["t"].tolist()


@pytest.mark.parametrize("number", range(_DATABASES))
def test_a_type_is_the_best_sum_of_scores_over_the_kept_rows_of_a_group(number: int) -> None:
    rng = np.random.default_rng([7, number])
    database = network(rng)
    private = database.private()
    for key in owner_keys(database):
        types = random_types(rng, database.schema, key)
        slow = slow_types(database, private, key, types)
        kept, parents = private.kept(key.child), private.parent_rows(key)
        for latent in range(len(types.shape)):
            above, below = shown(private, key, types, latent)
            values = np.array([value[latent] for value in slow] + [TYPE.size])
            assert above == values[:-1][private.kept(key.parent)].tolist()
            assert below == values[parents[kept]].tolist()


@pytest.mark.parametrize("number", range(10))
def test_the_order_of_rows_has_no_say(number: int) -> None:
    rng = np.random.default_rng([8, number])
    database = network(rng)
    moved = database.shuffled(number)
    for key in owner_keys(database):
        types = random_types(rng, database.schema, key)
        one, other = (by_id(each, key.parent, shown(each.private(), key, types, 0)[0]) for each in (database, moved))
        assert one == other
        alike = MemberPlace(key, "x", X, np.zeros(X.size, dtype=np.int64), 3)
        agreeing = SiblingAgreement(key, "x", X)
        for view in (ViewSpec(key.child, {"p": (alike, PLACE)}), ViewSpec(key.child, {"p": (agreeing, AGREEMENT)})):
            one, other = (
                by_id(each, key.child, build_view(each.private(), view).codes["p"].tolist())
                for each in (database, moved)
            )
            assert one == other


@pytest.mark.parametrize("number", range(_DATABASES))
def test_a_place_counts_the_kept_siblings_that_stand_before(number: int) -> None:
    rng = np.random.default_rng([9, number])
    database = network(rng)
    private = database.private()
    for key in owner_keys(database):
        order = rng.permutation(X.size)
        feature = MemberPlace(key, "x", X, order, 3)
        codes = build_view(private, ViewSpec(key.child, {"p": (feature, PLACE)})).codes["p"]
        scores = order[X.encode(private.column(key.child, "x"))]
        parents, kept = private.parent_rows(key), private.kept(key.child)
        for row, code in zip(np.flatnonzero(kept), codes, strict=True):
            group = np.flatnonzero(kept & (parents == parents[row])) if parents[row] >= 0 else np.array([row])
            before, alike = (scores[group] < scores[row]).sum(), (scores[group] == scores[row]).sum()
            found = place_codes(np.arange(before, before + alike), np.full(alike, len(group)), 3)
            assert code in found
            if len(group) <= 3:
                assert len({int(codes[np.flatnonzero(kept) == other][0]) for other in group}) == len(group)


@pytest.mark.parametrize("number", range(_DATABASES))
def test_a_row_agrees_with_the_next_kept_sibling_by_a_keyed_hash(number: int) -> None:
    rng = np.random.default_rng([10, number])
    database = network(rng)
    private = database.private()
    for key in owner_keys(database):
        codes = build_view(private, ViewSpec(key.child, {"a": (SiblingAgreement(key, "x", X), AGREEMENT)})).codes["a"]
        values, ids = X.encode(private.column(key.child, "x")), database.tables[key.child].select(["id"])
        hashed = keyed_order(private._secret, [database.schema.table(key.child).column("id")], ids)
        parents, kept = private.parent_rows(key), private.kept(key.child)
        for row, code in zip(np.flatnonzero(kept), codes, strict=True):
            group = np.flatnonzero(kept & (parents == parents[row])) if parents[row] >= 0 else np.array([row])
            group = group[np.argsort(hashed[group])]
            other = group[(list(group).index(row) + 1) % len(group)]
            assert code == (ALONE if len(group) == 1 else SAME if values[row] == values[other] else DIFFERENT)


def by_id(database: Database, table: str, codes: list[int]) -> Mapping[int, int]:
    ids = database.tables[table].column("id").to_pylist()
    kept = database.private().kept(table)
    return dict(zip([row for row, stays in zip(ids, kept, strict=True) if stays], codes, strict=True))
