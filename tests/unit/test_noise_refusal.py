"""A run that would buy noise stops early, and what it says would help does help."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core.errors import NoiseOnlyError
from privbench_core.pipeline import plan_for
from privbench_core.pipeline.executor import RunResult
from privbench_core.pipeline.noise import noise_of, remedies, unchanged
from privbench_core.profiles.profile import Profile
from privbench_core.schema.columns import Learn, Values
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import StepContext
from privbench_core.units.row_count import RowCount, UnitCount
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import category, door_of, integer, owner_key, place_of, planted_pair, rows_of, texts

TO_POST = ForeignKey("vote", ("post_id",), "post", ("id",), max_children=500)


def forum(key: ForeignKey = TO_POST, users: int = 600) -> tuple[Schema, dict[str, pa.Table]]:
    """Users with a post each, and four votes each on posts of others, which go with these unless the key says else."""
    rng = np.random.default_rng(0)
    user = Table("user", (integer("id"), category("a", 2)), ("id",))
    post = Table("post", (integer("id"), integer("user_id")), ("id",), (owner_key("post", "user_id", "user", 2),))
    columns = tuple(category(name, 3) for name in "bcdef")
    keys = (owner_key("vote", "user_id", "user", 8), key)
    vote = Table("vote", (integer("id"), integer("user_id"), integer("post_id"), *columns), ("id",), keys)
    number, home = np.arange(users), np.repeat(np.arange(users), 4)
    cells = {column.name: texts(rng.integers(0, 3, len(home))) for column in columns}
    tables = {
        "user": rows_of(user, id=number, a=texts(rng.integers(0, 2, users))),
        "post": rows_of(post, id=number, user_id=number),
        "vote": rows_of(vote, id=np.arange(len(home)), user_id=home, post_id=rng.permutation(home), **cells),
    }
    return Schema("forum", (vote, post, user), "user"), tables


def share(text: str, pattern: str) -> float:
    found = re.search(pattern, text)
    assert found, text
    return float(found[1]) / 100


def profiles_of(result: RunResult) -> dict[str, Profile]:
    data = {key[1]: made.artifact.data for key, made in result.releases.items() if key[0] == "profile"}
    return {name: Profile.from_dict(found["profile"]) for name, found in data.items()}


def test_a_table_that_bounds_hide_is_refused_early_and_each_remedy_helps(tmp_path: Path) -> None:
    """The refusal comes before anything else is bought: how many units there are says it."""
    place = place_of(tmp_path, *forum())
    with pytest.raises(NoiseOnlyError) as caught:
        place.run(3.2, accept_noise=False)
    said = str(caught.value)
    assert "vote: about " in said
    bought = share(said, r"stopped after spending ([\d.]+)% of the run's budget. Its results are kept")
    assert bought == pytest.approx(place.spent / place.plan_total(3.2), rel=0.05)
    assert 0 < bought <= 0.1
    assert not any(step.startswith("profile/") for step, _ in place.booked)
    found = re.search(
        r"max_children: (\d) at vote.post_id if no row has more \(100% of what was paid is reused\), or", said
    )
    assert found, said
    remedy = "on_unit_removed: set null at vote.post_id if rows stay there, with another database name, because costs"
    assert remedy in said
    less = forum(replace(TO_POST, max_children=int(found[1])))[0]
    stays = replace(forum(replace(TO_POST, on_unit_removed=OnUnitRemoved.SET_NULL))[0], name="other")
    before = place.spent
    result = replace(place, spec=replace(place.spec, schema=less)).run(3.2, accept_noise=False)
    assert not profiles_of(result)["vote"].all_noise
    assert result.paid == pytest.approx(place.plan_total(3.2) - before)
    step = plan_for(replace(place.spec, schema=stays), 3.2).step(("profile", "vote"))
    session = door_of(stays, forum()[1], step.price, SeededNoise(0))
    units = UnitCount(np.array([0.0, 0.0, 600.0, 0.0]), 1.0, 8).to_dict()
    made = step.run(StepContext({("count", "vote"): Artifact({"units": units})}, session, {}, 0))
    assert not Profile.from_dict(made.data["profile"]).all_noise


def test_a_larger_epsilon_is_named_that_is_enough(tmp_path: Path) -> None:
    place = place_of(tmp_path, *planted_pair(200))
    spec, result = place.spec, place.run_with(SeededNoise(0), 0.2)
    plan = plan_for(spec, 0.2)
    parent = {"parent": RowCount(200.0, 20.0)}
    found = noise_of(spec.schema, plan, [step for step in plan.steps if step.reads], parent)
    assert re.fullmatch(r"about \d+ units at most, and noise hides up to \d+", found["profile", "child"].found)
    words = list(remedies(spec, plan, found["fidelity", "parent"]))
    enough = re.fullmatch(r"ε of at least about ([\d.]+)", words[-1])
    assert enough, words
    assert profiles_of(result)["parent"].all_noise
    assert not profiles_of(place.run_with(SeededNoise(0), float(enough[1])))["parent"].all_noise


def test_rows_whose_key_is_part_of_their_own_cannot_stay(tmp_path: Path) -> None:
    schema, tables = forum()
    vote = schema.table("vote")
    vote = replace(vote, primary_key=("user_id", "post_id"), columns=vote.columns[1:])
    tables["vote"] = tables["vote"].drop(["id"])
    schema = replace(schema, tables=(vote, *schema.tables[1:]))
    spec = place_of(tmp_path, schema, tables).spec
    plan = plan_for(spec, 3.2)
    known = {"user": RowCount(600.0, 20.0)}
    found = noise_of(schema, plan, [step for step in plan.steps if step.reads], known)
    assert {noise.subject for noise in found.values()} == {"vote"}
    words = list(remedies(spec, plan, found["profile", "vote"]))
    assert words == ["max_children: 1 at vote.post_id if no row has more"]


def test_little_noise_is_bought_and_said_by_the_bundle(tmp_path: Path) -> None:
    """A table that is empty stops no run of others that are not."""
    schema, tables = planted_pair(800)
    empty = Table(
        "note", (integer("id"), integer("u"), category("n", 2)), ("id",), (owner_key("note", "u", "parent", 9),)
    )
    schema = replace(schema, tables=(*schema.tables, empty))
    place = place_of(tmp_path, schema, tables | {"note": rows_of(empty, id=[], u=[], n=pa.array([], pa.string()))})
    result = place.run(3.2, accept_noise=False)
    assert [line for line in result.warnings if line.startswith("note: all noise")]


def test_a_list_that_one_table_learns_changes_no_profile_of_others(tmp_path: Path) -> None:
    schema, tables = forum()
    vote, post, user = schema.tables

    def with_domain(table: Table, domain: Learn | Values) -> Table:
        return replace(table, columns=(*table.columns[:-1], replace(table.columns[-1], domain=domain)))

    plans = []
    for name, domain in (("learns", Learn()), ("knows", Values(("v0", "v1")))):
        declared = replace(schema, tables=(with_domain(vote, Learn()), post, with_domain(user, domain)))
        plans.append(plan_for(place_of(tmp_path / name, declared, tables).spec, 3.2))
    assert ("profile", "vote") in unchanged(*plans)
    assert ("profile", "user") not in unchanged(*plans)
