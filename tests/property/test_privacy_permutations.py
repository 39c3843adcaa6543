"""Permutation views: tuples counted exactly, no unit above its weight, and what removing a unit moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.registry import codec_for
from privbench_core.errors import InternalError
from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.features import CoMember, OfParent, Own, OwnerFanout
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.permutations import PERMUTATION_SCALE, Groups, tuple_counts
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.privacy.relations import stability
from privbench_core.privacy.split_rules import ByValue
from privbench_core.privacy.view_building import build_view
from privbench_core.privacy.views import CodedView, ViewSpec
from tests.helpers.databases import Database, adversaries, forum, shop, town
from tests.helpers.examples import examples
from tests.helpers.noise import SeededNoise

EXAMPLES = examples(30, 60)
# Database, table, and a column of the table and of its owner with a declared domain each.
RELATIONS: dict[str, tuple[Callable[[int], Database], str, str, str]] = {
    "crowded groups, NULLs": (town, "person", "age", "rooms"),
    "chain": (shop, "item", "count", "paid"),
    "another private parent": (forum, "vote", "up", "long"),
}
MARGINALS = [
    ("own",),
    ("owner", "own"),
    ("second",),
    ("own", "second"),
    ("second", "third"),
    ("second", "owner", "own"),
    ("own", "second", "third"),
    ("third", "owner", "own", "second"),
]


def spec(database: Database, table: str, own: str, above: str) -> ViewSpec:
    here = database.schema.table(table)
    key = here.owner_key
    assert key is not None
    discretizer = Discretizer(codec_for(here.column(own), table=table))
    parent = Discretizer(codec_for(database.schema.table(key.parent).column(above), table=key.parent))
    sizes = Discretizer(FanoutCodec(key.max_children or 1))
    return ViewSpec(
        table,
        {
            "own": (Own(own), discretizer),
            "second": (CoMember(key, 1, own), discretizer),
            "third": (CoMember(key, 2, own), discretizer),
            "owner": (OfParent(key, above), parent),
            "size": (OwnerFanout(key), sizes),
        },
    )


def by_hand(database: Database, what: ViewSpec, columns: tuple[str, ...]) -> np.ndarray:
    """The same marginal, tuple by tuple."""
    private, here = database.private(), database.schema.table(what.table)
    key = here.owner_key
    assert key is not None
    member = {name: how.member if isinstance(how, CoMember) else 0 for name, (how, _) in what.features.items()}
    plain = {name: how for name, how in what.features.items() if not member[name]}
    view = build_view(private, ViewSpec(what.table, plain))
    codes = {name: view.codes["own" if member[name] else name] for name in columns}
    members = sorted({member[name] for name in columns})
    rows = np.flatnonzero(private.kept(what.table))
    owners = private.parent_rows(key)[rows]
    counts = np.zeros([view.sizes["own" if member[name] else name] for name in columns], dtype=object)
    for owner in np.unique(owners):
        inside = np.flatnonzero(owners == owner)
        tuples = list(permutations(inside, len(members)))
        if not tuples:
            continue
        least = private.unit_rows(what.table)[rows[inside[0]]]
        share = next((most for most in what.rows_per_unit if most >= least), least)
        for chosen in tuples:
            role = dict(zip(members, chosen, strict=True))
            cell = tuple(codes[name][role[member[name]]] for name in columns)
            counts[cell] += PERMUTATION_SCALE // int(share) // (len(tuples) // len(inside))
    return counts.astype(np.int64)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("columns", MARGINALS)
@pytest.mark.parametrize("counted", [(1,), (4,), (1, 8)])
def test_marginals_are_those_of_the_tuples_one_by_one(
    relation: str, columns: tuple[str, ...], counted: tuple[int, ...]
) -> None:
    make, *names = RELATIONS[relation]
    database = make(0)
    what = replace(spec(database, *names), rows_per_unit=counted)
    view = build_view(database.private(), what)
    counted = Marginal(columns).evaluate(view)
    named = len({view.data.held().members.get(name, 0) for name in columns})
    assert (counted.sum() > 0) == (named < view.sizes["size"])  # τ = 2 leaves no triples
    np.testing.assert_array_equal(counted, by_hand(database, what, columns))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize("counted", [(1,), (1, 8)])
def test_a_unit_moves_no_more_than_the_stability(relation: str, seed: int, counted: tuple[int, ...]) -> None:
    make, table, *names = RELATIONS[relation]
    database = make(seed)
    what = replace(spec(database, table, *names), rows_per_unit=counted)
    before = build_view(database.private(), what)
    assert before.stability == np.ceil(stability(database.schema, table) * PERMUTATION_SCALE)
    most = 0
    for unit in adversaries(database, seed, 6):
        after = build_view(database.without(unit).private(), what)
        for columns in MARGINALS:
            moved = int(np.abs(before.counts(columns) - after.counts(columns)).sum())
            most = max(most, moved)
            assert moved <= before.stability
            coarse = [merged_at_random(columns, before, seed).evaluate(view) for view in (before, after)]
            assert int(np.abs(coarse[0] - coarse[1]).sum()) <= moved
            # Parts by the size of the group: together no more than the whole.
            parts = sum(
                int(np.abs(_part(before, size).counts(columns) - _part(after, size).counts(columns)).sum())
                for size in range(before.sizes["size"])
            )
            assert moved <= parts <= before.stability
        reference = np.full([before.sizes["own"], before.sizes["second"]], 0.37)
        score = Distances((((("own", "second"), reference),),))
        assert abs(int((score.evaluate(before) - score.evaluate(after))[0])) <= before.stability
    assert most > (0.9 if counted == (1,) else 0.5) * PERMUTATION_SCALE  # the bound is met: nothing is scaled away


def merged_at_random(columns: tuple[str, ...], view: CodedView, seed: int) -> Marginal:
    """A marginal over groups of codes, with as many groups as chance would have it."""
    rng = np.random.default_rng(seed)
    drawn = (rng.integers(0, 1 + view.sizes[name] // 2, view.sizes[name]) for name in columns)
    return Marginal(columns, tuple(np.unique(groups, return_inverse=True)[1] for groups in drawn))


def _part(view: CodedView, size: int) -> CodedView:
    return view.take(view.codes["size"] == size)


def test_groups_cut_by_a_rule_on_rows_keep_their_weights() -> None:
    """A part with some of a group's rows holds the tuples among these, at the weight they have in the whole."""
    database = town(0)
    view = build_view(database.private(), spec(database, *RELATIONS["crowded groups, NULLs"][1:]))
    whole = view.counts(("own", "second"))
    low = ByValue("own", tuple(int(code > 5) for code in range(view.sizes["own"])))
    parts = [view.take(low.assign(view.codes) == part) for part in range(2)]
    within = [part.counts(("own", "second")) for part in parts]
    np.testing.assert_array_equal(within[0][:6, :6], whole[:6, :6])
    np.testing.assert_array_equal(within[1][6:, 6:], whole[6:, 6:])
    assert within[0][6:].sum() == within[1][:6].sum() == 0


@EXAMPLES
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=8),
    st.integers(1, 3),
    st.integers(1, 60),
    st.integers(1, 3),
    st.integers(0, 10_000),
)
def test_random_groups(sizes: list[int], codes: int, above: int, members: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    size = np.array(sizes, dtype=np.int64)[owner]
    groups = Groups(owner.astype(np.int64), size, np.full(len(owner), PERMUTATION_SCALE // above))
    columns = [(rng.integers(0, codes, len(owner)), codes) for _ in range(members)]
    counted = tuple_counts(columns, groups)
    expected = np.zeros([codes] * members, dtype=np.int64)
    for group in range(len(sizes)):
        tuples = list(permutations(np.flatnonzero(owner == group), members))
        for chosen in tuples:
            expected[tuple(columns[i][0][row] for i, row in enumerate(chosen))] += (
                PERMUTATION_SCALE // above // len(tuples)
            )
    np.testing.assert_array_equal(counted, expected)
    assert counted.sum() <= len(sizes) * (PERMUTATION_SCALE // above)


def test_only_fellows_along_the_owner_key_and_of_three_members() -> None:
    database = forum(0)
    here = database.schema.table("vote")
    discretizer = Discretizer(codec_for(here.column("up"), table="vote"))
    voter = next(key for key in here.foreign_keys if not key.owner)
    for wrong in (
        CoMember(voter, 1, "up"),
        CoMember(here.foreign_keys[0], 3, "up"),
        CoMember(here.foreign_keys[0], 0, "up"),
    ):
        with pytest.raises(InternalError, match="co-members"):
            build_view(database.private(), ViewSpec("vote", {"up": (wrong, discretizer)}))
    with pytest.raises(InternalError, match="tuples of 4"):
        tuple_counts([(np.zeros(0, np.int64), 1)] * 4, Groups(*(np.zeros(0, np.int64),) * 3))


def test_the_curator_answers_in_counts_of_units() -> None:
    database = town(0)
    what = spec(database, *RELATIONS["crowded groups, NULLs"][1:])
    view = build_view(database.private(), what)
    account = PrivacyFilter(Price(Measure.GDP, 1e9), lambda *_: None)
    curator = Curator(view, account, SeededNoise(0), "test")
    pairs = curator.measure("pairs", [Marginal(("own", "second"))], Price(Measure.GDP, 1e8))
    several = np.bincount(database.private().parent_rows(database.schema.table("person").foreign_keys[0]))
    assert pairs.values[0].sum() == pytest.approx((several > 1).sum(), abs=0.01)
    assert curator.stability == 1
