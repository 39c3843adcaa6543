"""Record and replay over whole plans: a neighbour moves no noise input beyond what is declared.

Every noise call returns on the neighbour what it returned before, so *all* artifacts must come out byte for byte
the same: what differs has reached them around the noise. Beyond each call's sensitivity, what the calls cost between
the two databases must add up to no more than the step's price: that proves the composition, parallel parts included.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from enum import Flag, auto
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.columns.intervals import OrderedCodec
from privbench_core.columns.opaque import FormCodec
from privbench_core.groups.group_model import Latents
from privbench_core.privacy import view_building
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.features import (
    AsStored,
    Feature,
    Own,
    OwnDifference,
    OwnerDifference,
    OwnFanout,
    ParentFanout,
    SameReference,
    Satisfies,
    SiblingAgreement,
    SincePrevious,
)
from privbench_core.privacy.noise import Counts
from privbench_core.privacy.queries import Marginal, ParentCounts
from privbench_core.privacy.relations import is_set_null_across_units
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import CodedView, ViewSpec
from privbench_core.profiles import measure_bins as refine
from privbench_core.profiles.measure_lags import tied_columns
from privbench_core.profiles.profile import Profile, children_column
from privbench_core.schema.constraints import OnUnitRemoved
from privbench_core.schema.row_constraints import Formula, InOrder, MissingTogether, MissingWhere, SameValue
from privbench_core.synthesizers import privbench
from privbench_core.synthesizers.contract import Plan
from privbench_core.synthesizers.privbench import PrivBench
from tests.helpers.databases import (
    Database,
    adversaries,
    agency,
    career,
    club,
    desk,
    fleet,
    forum,
    harbour,
    poll,
    shop,
    site,
    till,
    town,
    ward,
)
from tests.helpers.depot import depot
from tests.helpers.noise import RecordingNoise, ReplayNoise, SeededNoise, Violation
from tests.helpers.plans import (
    EagerSPN,
    Trace,
    computing_steps,
    plan_with,
    record,
    replay,
    replay_within_prices,
    run_step,
)

PURE, GAUSSIAN = Budget(60.0), Budget(100.0, 1e-6)
CLOSE = Budget(400.0)  # pure, and enough for closer looks at a few dozen rows
NOISY = Budget(0.5, 1e-6)
PLENTY = Budget(3000.0, 1e-6)  # so that pairs pay even where groups are few
SPLITTING = {"beta": 2}
PAPER = {"beta": 12, "alpha": 0.05}
LATENTS = {"latents": 2, "usefulness": 0.01, "iterations": 3}  # PrivLava, with types even where groups are few
LINKED = {"tables": "independent"}
NETWORKS_LINKED = {"tables": "privspn"}
GROUPS = {"usefulness": 0.1}  # PrivPetal, with classes of group sizes even where groups are few

cascading_forum = partial(forum, removed=OnUnitRemoved.CASCADE)
required_forum = partial(forum, required=True)
dated_depot = partial(depot, relative=False)


class Kind(Flag):
    """How a case is tested."""

    ONCE = 0
    LONG = auto()  # takes many seconds: there is one with the same mechanisms along other keys, or the other measure
    ADDED = auto()  # also from the smaller database: one of each neighbour relation, budget and synthesizer
    # These also draw rows once more in a replay: of what steps without a session are given all else is the same.


ONCE, LONG, ADDED = Kind.ONCE, Kind.LONG, Kind.ADDED
CASES = {
    "town, pairwise, Gaussian": (town, GAUSSIAN, SPLITTING, ADDED),
    "town, pairwise, pure": (partial(town, learned=False), PURE, SPLITTING, ONCE),
    "town, histograms, Gaussian": (town, GAUSSIAN, PAPER, LONG),
    "town, histograms, pure": (partial(town, learned=False), PURE, PAPER, ADDED),
    "town, mostly noise": (town, NOISY, SPLITTING, ONCE),
    "town, mostly noise, pure": (partial(town, learned=False), Budget(0.5), SPLITTING, ONCE),
    "shop, pairwise, Gaussian": (shop, GAUSSIAN, SPLITTING, ONCE),
    "shop, histograms, pure": (partial(shop, learned=False), PURE, PAPER, LONG),
    "forum, pairwise, Gaussian": (forum, GAUSSIAN, SPLITTING, ONCE),
    "forum, pairwise, pure": (forum, PURE, SPLITTING, ADDED),
    "forum, histograms, Gaussian": (forum, GAUSSIAN, PAPER, ONCE),
    "forum, cascading, Gaussian": (cascading_forum, GAUSSIAN, SPLITTING, ADDED),
    "forum, cascading, pure": (cascading_forum, PURE, PAPER, LONG),
    "forum, required, Gaussian": (required_forum, PLENTY, SPLITTING, ADDED),
    "forum, required, pure": (required_forum, PURE, PAPER, LONG),
    "poll, independent, pure": (poll, Budget(6.0), SPLITTING, ONCE),
    "poll, tied, pure": (partial(poll, tied=True), Budget(6.0), SPLITTING, ONCE),
    "career, pairwise, Gaussian": (career, PLENTY, SPLITTING, ADDED),
    "career, pairwise, pure": (career, PURE, SPLITTING, ONCE),
    "desk, pairwise, Gaussian": (desk, PLENTY, SPLITTING, ADDED),
    "desk, pairwise, pure": (desk, PURE, SPLITTING, ONCE),
    "desk, linked": (desk, PLENTY, LINKED, LONG),
    "till, pairwise, Gaussian": (till, GAUSSIAN, SPLITTING, ADDED),
    "till, pairwise, pure": (till, CLOSE, SPLITTING, ONCE),
    "club, junction": (club, PLENTY, SPLITTING, ADDED),
    "club, junction, pure": (club, Budget(3000.0), SPLITTING, LONG),
    "club, linked": (club, PLENTY, LINKED, LONG),
    "site, pairwise, Gaussian": (site, PLENTY, SPLITTING, ONCE),
    "site, pairwise, pure": (site, Budget(3000.0), SPLITTING, LONG),
    "site, cascading, Gaussian": (partial(site, cascades=True), PLENTY, SPLITTING, ADDED),
    "site, groups": (site, PLENTY, GROUPS, LONG),
    "site, latents": (site, PLENTY, LATENTS, ONCE),
    "site, linked": (site, PLENTY, LINKED, ONCE),
    "harbour, pairwise, pure": (harbour, PURE, SPLITTING, ONCE),
    "harbour, linked": (harbour, PLENTY, LINKED, LONG),
    "harbour, groups": (harbour, PLENTY, GROUPS, LONG),
    "ward, pairwise, Gaussian": (ward, GAUSSIAN, SPLITTING, ONCE),
    "ward, pairwise, pure": (ward, CLOSE, SPLITTING, LONG),
    "ward, groups": (ward, PLENTY, GROUPS, LONG | ADDED),
    "agency, documents": (agency, PLENTY, SPLITTING, ADDED),
    "agency, documents, mostly noise": (agency, NOISY, SPLITTING, ONCE),
    "agency, groups": (agency, PLENTY, GROUPS, LONG),
    "depot, pairwise, Gaussian": (depot, GAUSSIAN, SPLITTING, ONCE),
    "depot, pairwise, pure": (partial(depot, cascades=True), CLOSE, SPLITTING, LONG | ADDED),
    "depot, groups": (depot, PLENTY, GROUPS, LONG),
    "depot, latents": (depot, PLENTY, LATENTS, LONG),
    "depot, linked": (depot, PLENTY, LINKED, LONG),
    "dated depot, pairwise, Gaussian": (dated_depot, PLENTY, SPLITTING, ADDED),
    "dated depot, pairwise, pure": (partial(dated_depot, cascades=True), Budget(3000.0), SPLITTING, LONG),
    "dated depot, groups": (dated_depot, PLENTY, GROUPS, LONG),
    "dated depot, latents": (dated_depot, PLENTY, LATENTS, LONG),
    "dated depot, linked": (dated_depot, PLENTY, LINKED, LONG),
    "town, groups": (town, PLENTY, GROUPS, LONG),
    "town, linked": (town, PLENTY, LINKED, ADDED),
    "town, linked, pure": (partial(town, learned=False), Budget(3000.0), LINKED, LONG),
    "shop, linked": (shop, PLENTY, LINKED, ONCE),
    "shop, linked networks": (shop, PLENTY, NETWORKS_LINKED, ONCE),
    "forum, linked": (forum, PLENTY, LINKED, ADDED),
    "forum, linked, cascading": (cascading_forum, PLENTY, LINKED, ONCE),
    "forum, linked, required": (required_forum, PLENTY, LINKED, LONG),
    "till, linked": (till, PLENTY, LINKED, LONG),
    "town, groups, mostly noise": (town, NOISY, GROUPS, ONCE),
    "shop, groups": (shop, PLENTY, GROUPS, LONG),
    "forum, groups": (forum, PLENTY, GROUPS, ONCE),
    "forum, cascading, groups": (cascading_forum, PLENTY, GROUPS, LONG),
    "town, latents": (town, PLENTY, LATENTS, LONG),
    "town, latents, mostly noise": (town, Budget(4.0, 1e-6), LATENTS, ONCE),
    "town, no latents": (town, NOISY, {"latents": 1}, ONCE),
    "shop, latents": (shop, PLENTY, LATENTS, LONG),
    "forum, latents": (forum, PLENTY, LATENTS, ADDED),
    "forum, required, groups": (required_forum, PLENTY, GROUPS, LONG),
    "forum, cascading, latents": (cascading_forum, PLENTY, LATENTS, LONG),
}


def each(*cases: str) -> list[Any]:
    """The cases as parameters, the long ones marked as slow."""
    return [pytest.param(case, marks=pytest.mark.slow) if LONG in CASES[case][3] else case for case in cases]


@pytest.fixture(autouse=True)
def deep_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sum nodes even where rows are few; closer looks at few parts, so that there are more of them."""
    monkeypatch.setattr(privbench, "PairwiseSPN", EagerSPN)
    monkeypatch.setattr(refine, "MOST_PARTS", 256)


def features_of(views: list[ViewSpec]) -> list[Feature]:
    """What all columns of some views show."""
    return [feature for spec in views for feature, _ in spec.features.values()]


class Recorded(NamedTuple):
    """A case's database, its plan, what a run of it drew, released, and asked for, and how many cells groups saved."""

    database: Database
    plan: Plan
    noise: RecordingNoise
    trace: Trace
    views: list[ViewSpec]
    merged: list[int]


LATER_SEEDS = {"town, latents, mostly noise": 2}
"""Cases whose first seeds find one type for all groups, and by how many their seeds are larger."""


@cache
def recorded_case(case: str, seed: int) -> Recorded:
    """Run a case; each is run once."""
    make, budget, options, _ = CASES[case]
    seed += LATER_SEEDS.get(case, 0)
    database, views, merged = make(seed), list[ViewSpec](), list[int]()
    plan = plan_with(database.schema, budget, options)
    view, evaluate = PrivateSession.view, Marginal.evaluate

    def noting(self: PrivateSession, spec: ViewSpec, *rest: Any) -> Any:
        views.append(spec)
        return view(self, spec, *rest)

    def noting_groups(self: Marginal, view: CodedView) -> Counts:
        answer = evaluate(self, view)
        if self.groups:
            merged.append(math.prod(view.sizes[name] for name in self.columns) - answer.size)
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateSession, "view", noting)
        patch.setattr(Marginal, "evaluate", noting_groups)
        return Recorded(database, plan, *record(plan, database, seed), views, merged)


@pytest.mark.parametrize("case", each(*CASES))
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_neighbour_moves_nothing_but_what_noise_covers(case: str, seed: int) -> None:
    database, plan, recorded, first, *_ = recorded_case(case, seed)
    for number, unit in enumerate(adversaries(database, seed)):
        drawn = number == 0 and ADDED in CASES[case][3]
        losses = replay_within_prices(plan, recorded, first, database.without(unit), drawn=drawn)
        assert losses["moved",] > 0, "removing a unit moved nothing: the test looks at nothing"


def test_a_neighbour_moves_no_constraint_between_what_is_null_either() -> None:
    """The other kinds are asked about with the first seed."""
    test_a_neighbour_moves_nothing_but_what_noise_covers("town, pairwise, pure", 1)


def _noting_clipped(evaluate: Callable[..., Counts], found: list[Marginal | ParentCounts]) -> Callable[..., Counts]:
    """The same, that notes which queries clip some unit."""

    def noting(self: Any, view: CodedView) -> Counts:
        answer = evaluate(self, view)
        if self.clipped and (answer != evaluate(replace(self, clipped=False), view)).any():
            found.append(self)
        return answer

    return noting


@pytest.mark.parametrize(
    ("options", "budget", "seed"),
    [({}, Budget(3.5, 1e-6), 60), (LINKED, Budget(8.0, 1e-6), 61)],
    ids=["pairwise", "linked"],
)
def test_looks_over_rows_cost_rows_without_an_owner_no_more_either(
    options: dict[str, object], budget: Budget, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marginals over rows, which are clipped, joints beside them, references with two T, and links."""
    clipped: list[Marginal | ParentCounts] = []
    for query in (Marginal, ParentCounts):
        monkeypatch.setattr(query, "evaluate", _noting_clipped(query.evaluate, clipped))
    database = fleet(0)
    plan = plan_with(database.schema, budget, options)
    recorded, first = record(plan, database, seed)  # few seeds have them all: joints in so few rows, and two T
    sites = [call.head[1] for call in recorded.tape]
    assert any(isinstance(query, ParentCounts) for query in clipped)
    marginals = [query for query in clipped if isinstance(query, Marginal)]
    over = {query.columns for query in marginals}
    assert {len(columns) for columns in over} == ({1} if options == LINKED else {1, 2})
    assert max(scale for query in marginals for of_column in query.scales for scale in of_column) > 1
    if options == LINKED:
        assert any(" x " in site for site in sites if site.startswith("fanout/"))  # a cross-table marginal
    else:
        of_flights = [site.split("/")[-1] for site in sites if site.startswith("profile/flight")]
        assert "one-way" in of_flights[of_flights.index("dependence scores") :]
        assert any(site.endswith("parents again") for site in sites)
    alone = np.flatnonzero(database.tables["flight"].column("plane_id").is_null().to_numpy())
    for table, gone in [*(("plane", number) for number in (0, 1, 2, 40)), *(("flight", int(n)) for n in alone[:2])]:
        losses = replay_within_prices(plan, recorded, first, database.without(gone, table))
        assert losses["moved",] > 0


def test_references_that_follow_the_owner_cost_units_and_rows_without_an_owner_no_more() -> None:
    """Joints of an optional owner's column with attributes of public rows, and along a key that lets go."""
    database = harbour(0)
    plan = plan_with(database.schema, GAUSSIAN, SPLITTING)
    recorded, first = record(plan, database, 1)
    sites = {call.head[1] for call in recorded.tape}
    assert {f"fanout/call.port_id/lookup/target.{name} x parent.kind" for name in ("region", "depth", "#row")} <= sites
    assert any(re.fullmatch(r"fanout/call\.pilot_id/lookup of .*/target\.rank x parent\.kind", site) for site in sites)
    alone = np.flatnonzero(database.tables["call"].column("ship_id").is_null().to_numpy())
    for table, gone in [*(("ship", number) for number in (0, 1, 2, 40)), *(("call", int(n)) for n in alone[:2])]:
        losses = replay_within_prices(plan, recorded, first, database.without(gone, table))
        assert losses["fanout", "call.port_id"] > 0 or gone == 1


def test_documents_are_taken_apart_in_each_way() -> None:
    noise = recorded_case("agency, documents", 0).noise
    sites = {call.head[1].removeprefix("profile/") for call in noise.tape}
    assert {"agent/discover prefs->place[]", 'ticket/discover payload->text["by"]', "ticket/documents/named"} <= sites


def test_ranks_of_bounded_references_cost_what_they_should() -> None:
    """Where noise is small, ranks of all references are asked for, beside totals, targets, scores and joints."""
    database = forum(0)
    plan = plan_with(database.schema, Budget(1e6, 1e-6), SPLITTING)
    recorded, first = record(plan, database, 0)
    asked = {call.head[1].split("/")[-1] for call in recorded.tape if call.head[1].startswith("fanout/vote.user_id/")}
    assert {"references", "ranks", "targets", "context", "dependence scores", "target.age x up"} <= asked
    for gone in range(4):
        replay_within_prices(plan, recorded, first, database.without(gone))


@pytest.mark.parametrize("case", ["town, pairwise, Gaussian", "shop, histograms, pure", "forum, pairwise, Gaussian"])
def test_steps_that_saw_different_states_of_the_source_cost_no_more(case: str) -> None:
    """As when a watermark misses an edit: a profile of some rows, models of others, at the same price for each unit."""
    make, budget, options, _ = CASES[case]
    states = make(0), make(1)
    plan = plan_with(states[0].schema, budget, options)
    steps = list(computing_steps(plan))
    tape, first = RecordingNoise(SeededNoise(0)), Trace()
    for number, step in enumerate(steps):
        run_step(step, states[number % 2], tape, first)
    both = {*states[0].units(), *states[1].units()}
    for unit in {*adversaries(states[0], 0), *adversaries(states[1], 0)} & both:
        noise, second = ReplayNoise(tape.tape), Trace()
        for number, step in enumerate(steps):
            before = noise.loss
            state = states[number % 2]
            run_step(step, state.without(unit) if unit in state.units() else state, noise, second)
            assert noise.loss - before <= step.price.amount * (1 + 1e-9), f"{step.key}, {unit}"
            assert first.artifacts[step.key].to_bytes() == second.artifacts[step.key].to_bytes(), f"{step.key}, {unit}"
        noise.finish()
        assert noise.moved > 0


@pytest.mark.parametrize(
    "case", [case if ADDED in CASES[case][3] else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_adding_is_covered_like_removing(case: str) -> None:
    make, budget, options, _ = CASES[case]
    database = make(2)
    plan = plan_with(database.schema, budget, options)
    smaller = database.without(database.units()[0])
    recorded, _ = record(plan, smaller, 2)
    replay(plan, database, ReplayNoise(recorded.tape))


@pytest.mark.parametrize(
    "case",
    each(
        "town, pairwise, Gaussian",
        "town, histograms, pure",
        "shop, pairwise, Gaussian",
        "till, pairwise, Gaussian",
        "ward, pairwise, Gaussian",
        "depot, pairwise, Gaussian",
        "town, groups",
        "town, latents",
        "forum, groups",
        "forum, latents",
    ),
)
def test_half_the_sensitivity_is_flagged(case: str) -> None:
    make, budget, options, _ = CASES[case]
    database = make(3)
    plan = plan_with(database.schema, budget, options)
    recorded, _ = record(plan, database, 3)
    for unit in database.units()[:4]:
        with pytest.raises(Violation, match="shift"):
            replay(plan, database.without(unit), ReplayNoise(recorded.tape, claim=0.5))


@pytest.mark.parametrize("budget", [GAUSSIAN, PURE], ids=["Gaussian", "pure"])
def test_references_that_become_null_have_to_be_paid_for(budget: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes of user 0 on posts of others stay and lose their voter: what is measured along that key moves by these."""
    database = forum(0)
    everybody = np.arange(30)
    posts = {"id": everybody, "user_id": everybody, "long": everybody % 2 == 0}
    age = database.tables["user"].column("age").to_numpy()
    other = int(np.argmax(abs(age - age[0])))
    voters = pa.array([other, 0, 0, 0, *[None] * 26], pa.int64())
    votes = {"id": everybody, "post_id": everybody, "user_id": voters, "up": everybody % 2 == 0}
    rows = {"post": pa.table(posts), "vote": pa.table(votes)}
    database = replace(database, tables={**database.tables, **rows})
    plan = plan_with(database.schema, budget, SPLITTING)
    recorded, _ = record(plan, database, 0)
    replay(plan, database.without(0), ReplayNoise(recorded.tape))
    monkeypatch.setattr(view_building, "bounded_moves", lambda _schema, _key, _to_unit, rows: (rows, rows))
    recorded, _ = record(plan, database, 0)
    with pytest.raises(Violation, match=r"fanout/vote\.user_id/.* shift"):
        replay(plan, database.without(0), ReplayNoise(recorded.tape))


@pytest.mark.parametrize("case", each("town, groups", "shop, groups", "forum, groups"))
def test_groups_are_measured_here(case: str) -> None:
    """The cases of PrivPetal above look at pairs of children, in more than one class of group sizes."""
    recorded = recorded_case(case, 0).noise
    pairs = [call.head[1] for call in recorded.tape if " x other." in call.head[1]]
    assert len({site.split("/groups/")[1][0] for site in pairs}) > 1
    triples = any(call.head[1].endswith("triple scores") for call in recorded.tape)
    assert triples or case == "forum, groups"  # where τ = 2


@pytest.mark.parametrize("case", each(*(case for case in CASES if case.endswith(("latents", "latents, mostly noise")))))
def test_every_iteration_measures_types_along_every_owner_key(case: str) -> None:
    """The cases of PrivLava above run all of the EM, on types that differ, also where types are columns themselves."""
    database, _, recorded, trace, *_ = recorded_case(case, 0)
    keys = [table.owner_key for table in database.schema.private_tables if table.owner_key is not None]
    if case == "town, no latents":
        assert trace.artifacts["fanout", keys[0].name].data["latents"] is None
        return
    for key in keys:
        sites = {call.head[1].split(f"fanout/{key.name}/")[-1] for call in recorded.tape if key.name in call.head[1]}
        assert {f"types {number}/{what}" for number in range(3) for what in ("sizes", "children")} <= sites
        counts = Latents.from_dict(trace.artifacts["fanout", key.name].data["latents"]).one_way.counts
        assert all(np.count_nonzero(values[1:] > 1) > 1 for values in counts.values()), "one type for all groups"


@pytest.mark.parametrize(
    "case", each("till, pairwise, Gaussian", "till, pairwise, pure", "town, groups", "forum, groups")
)
def test_the_plans_tested_do_merge_codes(case: str) -> None:
    """Of tables and along keys, some pair is measured over groups of codes."""
    merged = recorded_case(case, 0).merged
    assert max(merged) > 0 <= min(merged)


def test_two_units_less_are_flagged() -> None:
    database = town(4)
    plan = PrivBench().plan(database.schema, GAUSSIAN, SPLITTING)
    recorded, _ = record(plan, database, 4)
    with pytest.raises(Violation, match="L1 shift"):
        replay(plan, database.without(104).without(105), ReplayNoise(recorded.tape))


@pytest.mark.parametrize("case", ["town, pairwise, Gaussian", "town, histograms, Gaussian"])
def test_the_plans_tested_do_grow_sum_nodes(case: str) -> None:
    trace = recorded_case(case, 0).trace
    assert all(trace.artifacts["model", name].data["summary"]["sum"] > 0 for name in ("household", "person"))


@pytest.mark.parametrize("budget", [Budget(0.1, 1e-6), Budget(0.5)], ids=["Gaussian", "pure"])
def test_noisy_plans_spend_on_marginals_what_joints_do_not_need(budget: Budget) -> None:
    database = town(0, learned=False)
    plan = PrivBench().plan(database.schema, budget, SPLITTING)
    _, trace = record(plan, database, 12)  # most seeds take so few rows for many more
    for table in ("household", "person"):
        charged = trace.charges["count", table] + trace.charges["profile", table]
        price = plan.learning_price(table)
        assert price is not None
        assert sum(price.amount for _, price in charged) == pytest.approx(price.amount)
        labels = {label.split("/")[-1].split(",")[0] for label, _ in charged}
        assert "dependence scores" not in labels
        # Laplace noise: all in one look, once the number of rows is known. Gaussian noise: twice, at no loss.
        assert "rows" in labels if budget.delta == 0 or table == "person" else "one-way again" in labels


@pytest.mark.parametrize("case", ["till, pairwise, Gaussian", "till, pairwise, pure"])
def test_the_plans_tested_do_look_closer(case: str) -> None:
    trace = recorded_case(case, 0).trace
    for table in ("customer", "sale"):
        labels = [label for label, _ in trace.charges["profile", table]]
        assert sum("parts of heavy cells" in label for label in labels) > 1, labels
        discretizers = Profile.from_dict(trace.artifacts["profile", table].data["profile"]).discretizers
        codecs = [discretizer.codec for discretizer in discretizers.values()]
        ranges = [np.diff(codec.starts) for codec in codecs if isinstance(codec, OrderedCodec) and codec.ordered > 2]
        assert any(widths.max() > 2 * widths[widths > 1].min() for widths in ranges if (widths > 1).any())


@pytest.mark.parametrize("case", ["town, pairwise, Gaussian", "till, pairwise, pure", "till, pairwise, Gaussian"])
def test_the_plans_tested_do_measure_signs(case: str) -> None:
    # Those of the neighbours above.
    sites = [call.head[1] for seed in (0, 1) for call in recorded_case(case, seed).noise.tape]
    assert any(site.endswith("/signs") for site in sites)


@pytest.mark.parametrize("case", each(*(case for case in CASES if case.startswith("site"))))
def test_the_plans_tested_do_look_at_numbers_of_siblings(case: str) -> None:
    """Numbers of children of one kind are measured beside those of another; with cascading keys, of fewer."""
    recorded = recorded_case(case, 0).noise
    sites = [call.head[1] for call in recorded.tape]
    assert any("fanout by parent/" in site and "#children along" in site for site in sites)


@pytest.mark.parametrize("case", each(*(case for case in CASES if case.startswith("ward"))))
def test_the_plans_tested_do_look_at_differences(case: str) -> None:
    """Of rows that differ in nothing but the base of another column, each has a code of its own."""
    database, trace = recorded_case(case, 0).database, recorded_case(case, 0).trace
    for table in database.schema.private_tables:
        found = Profile.from_dict(trace.artifacts["profile", table.name].data["profile"]).discretizers
        for column, _ in table.relatives:
            assert found[column.name].codec.grid.type == column.modelled.type  # type: ignore[attr-defined]
    stay = database.tables["stay"]
    later = stay.set_column(5, "net", pa.array([Decimal("-5.00")] * stay.num_rows, stay.schema.field("net").type))
    moved = replace(database, tables={**database.tables, "stay": later})
    assert moved.private().column("stay", "gross") != database.private().column("stay", "gross")


@pytest.mark.parametrize(
    ("case", "owner"),
    [
        ("site, pairwise, Gaussian", True),
        ("site, cascading, Gaussian", True),
        ("site, latents", True),
        ("site, linked", True),
        ("forum, linked", False),
        ("harbour, pairwise, pure", True),
        ("forum, pairwise, Gaussian", False),
        ("forum, latents", False),
        ("forum, groups", False),
    ],
)
def test_the_plans_tested_do_look_at_how_many_children_parents_have(case: str, owner: bool) -> None:
    """Along owner keys, where numbers or columns of children follow how many others their owner has; along others."""
    views = recorded_case(case, 0).views
    asked = [of.key for of in features_of(views) if isinstance(of, ParentFanout)]
    numbers = [(of.key, spec) for spec in views for of, _ in spec.features.values() if isinstance(of, OwnFanout)]
    asked += [key for key, spec in numbers if children_column(key.name) in spec.features]
    assert owner in {key.owner for key in asked}


def test_links_that_are_learned_along_keys_that_let_go_count_bounded_references_alone() -> None:
    """So that the plan replayed has such a view, and no other one along the key."""
    database, *_, asked, _ = recorded_case("forum, linked", 0)
    schema = database.schema
    going = {key for table in schema.tables for key in table.foreign_keys if is_set_null_across_units(schema, key)}
    along = [spec for spec in asked for of, _ in spec.features.values() if getattr(of, "key", None) in going]
    assert any(len(spec.features) > 1 and isinstance(of, Own) for spec in along for of, _ in spec.features.values())
    assert all(spec.bounded is not None for spec in along)


@pytest.mark.parametrize("case", each(*(case for case in CASES if case.startswith("depot"))))
def test_the_plans_tested_do_look_at_differences_from_owners(case: str) -> None:
    """Of tables in which only a day of their owners is another one, each view has other codes."""
    database, _, recorded, trace, *_ = recorded_case(case, 0)
    for table in database.schema.private_tables:
        found = Profile.from_dict(trace.artifacts["profile", table.name].data["profile"]).discretizers
        for column, base in table.relatives:
            assert (base.name in table.owner_bases) == (column.name != "seen")
            assert found[column.name].codec.grid.type == column.modelled.type  # type: ignore[attr-defined]
    assert any("fanout/parcel.with_id" in call.head[1] for call in recorded.tape)
    customer = database.tables["customer"]
    sooner = pa.array([dt.date(2000, 1, 1)] * customer.num_rows)
    moved = replace(database, tables={**database.tables, "customer": customer.set_column(1, "since", sooner)})
    assert moved.private().column("purchase", "placed") != database.private().column("purchase", "placed")
    assert moved.private().column("parcel", "sent") == database.private().column("parcel", "sent"), "the stored day"


@pytest.mark.parametrize("case", each(*(case for case in CASES if case.startswith("depot"))))
def test_the_plans_tested_show_days_as_they_stand(case: str) -> None:
    """Of a column that is modelled relative to another one of the row."""
    shown = features_of(recorded_case(case, 0).views)
    assert {of for of in shown if isinstance(of, AsStored)} == {AsStored("seen")}


def test_the_plans_tested_measure_what_texts_are_made_of() -> None:
    """Of columns of which no value is named: in other plans of this database, all columns have some."""
    shown = [
        coder.codec for spec in recorded_case("town, mostly noise", 0).views for _, coder in spec.features.values()
    ]
    assert any(isinstance(codec, FormCodec) for codec in shown)


@pytest.mark.parametrize("case", each(*(case for case in CASES if case.startswith("dated depot"))))
def test_the_plans_tested_do_look_at_lags(case: str) -> None:
    """Of each table whose owner is dated as well, and within its rows; a time is compared with days."""
    shown = features_of(recorded_case(case, 0).views)
    asked = {(of.column, of.base) for of in shown if isinstance(of, OwnDifference | OwnerDifference)}
    of_owners = {*product(("placed", "paid"), ("since", "seen")), ("sent", "placed"), ("sent", "paid")}
    assert asked == {*of_owners, ("paid", "placed"), ("seen", "since")}


@pytest.mark.parametrize(
    ("case", "seed", "kinds"),
    [
        ("town, pairwise, pure", 4, {MissingTogether}),
        ("town, pairwise, pure", 1, {MissingWhere}),
        ("poll, independent, pure", 0, {InOrder, Formula}),
        ("dated depot, pairwise, Gaussian", 0, {InOrder, SameValue}),
    ],
)
def test_the_plans_tested_do_look_at_constraints(case: str, seed: int, kinds: set[type]) -> None:
    """Between values, and between what is NULL, in both measures."""
    asked = {type(of.constraint) for of in features_of(recorded_case(case, seed).views) if isinstance(of, Satisfies)}
    assert asked >= kinds


@pytest.mark.parametrize("case", each(*(case for case in CASES if case.startswith("dated depot"))))
def test_the_plans_tested_compare_rows_with_those_before(case: str) -> None:
    """In all dates and whole numbers of owned rows that are not relative to other columns."""
    recorded = recorded_case(case, 0)
    asked = {(of.key.child, of.column) for of in features_of(recorded.views) if isinstance(of, SincePrevious)}
    tables = recorded.database.schema.private_tables
    assert asked == {(table.name, name) for table in tables for name in tied_columns(table)}
    assert ("purchase", "placed") in asked


@pytest.mark.parametrize("case", each(*CASES))
def test_the_plans_tested_do_look_at_siblings(case: str) -> None:
    """Of tables whose owners may have several of their rows, but not where noise would leave nothing of it."""
    seen = any(isinstance(of, SiblingAgreement) for of in features_of(recorded_case(case, 0).views))
    if CASES[case][1] is PLENTY or "mostly noise" in case:
        assert seen == (CASES[case][1] is PLENTY)


@pytest.mark.parametrize("case", each(*(case for case in CASES if case.startswith("desk"))))
def test_the_plans_tested_do_look_at_where_two_ways_lead(case: str) -> None:
    """From the row or its owner, and to what it refers to or from there."""
    shown = features_of(recorded_case(case, 0).views)
    ways = {(of.key.name, of.mine.name) for of in shown if isinstance(of, SameReference)}
    assert ways == {
        ("ticket.account_id", "user.account_id"),
        ("tag.label_id", "ticket.project_id"),
        ("comment.folder_id", "ticket.folder_id"),
    }


def test_truncation_is_active_in_the_databases_tested() -> None:
    for database in (town(0), shop(0), forum(0), till(0), site(0), ward(0), career(0), desk(0), depot(0)):
        private = database.private()
        kept = [private.kept(table.name).all() for table in database.schema.private_tables]
        assert not all(kept), database.schema.name
