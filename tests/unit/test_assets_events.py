"""What runs after each thing that can happen, in materialisations per step and ε, and what it costs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow.parquet as pq
import pytest

from tests.helpers.orchestrated import Orchestrated, errors, shown, versions

LOW, HIGH, NEW = "0.8", "3.2", "1.6"
LEAF = ["profile/person", "model/person", "fanout/person.household_id", "sample/person", "validate/all"]
ROOT = ["profile/household", "model/household", "fanout/person.household_id", "sample/household", "sample/person"]
END = ["validate/all", "publish/bundle"]
LINE_OF_PERSON = [*LEAF, "publish/bundle"]
LINE_OF_HOUSEHOLD = [*ROOT, *END]
LINE_OF_PET = [step.replace("person", "pet") for step in LINE_OF_PERSON]
MODEL = ("model", "person")
Made = dict[str, dict[str, int]]


def each(steps: list[str], *epsilons: str) -> Made:
    return {step: dict.fromkeys(epsilons, 1) for step in steps}


def nothing(_: Orchestrated) -> None:
    return


def start(operated: Orchestrated) -> None:
    for epsilon in (LOW, HIGH):
        assert operated.refresh(epsilon).success


def leaf(operated: Orchestrated) -> None:
    operated.change("person")


def root(operated: Orchestrated) -> None:
    operated.change("household")


def keep(operated: Orchestrated) -> None:
    shutil.copy(operated.path.parent / "person.parquet", operated.path.parent / "person.kept")
    operated.change("person")


def restore(operated: Orchestrated) -> None:
    shutil.copy(operated.path.parent / "person.kept", operated.path.parent / "person.parquet")


def make_again(operated: Orchestrated) -> None:
    spent = operated.spent()
    result = operated.refresh(LOW, ["model/person"])
    assert shown(result)["model/person"]["paid by this run"] == "nothing: bought before, reused"
    assert operated.spent() == spent


def edit_code(operated: Orchestrated) -> None:
    operated.fake.versions[MODEL] = "2"
    operated.reload()


def refit(operated: Orchestrated) -> None:
    assert shown(operated.refresh(LOW, ["model/person"]))["model/person"]["paid ρ"] > 0


def fail_once(operated: Orchestrated) -> None:
    operated.change("person")  # as it was once before, and bought
    operated.change("person")
    operated.fake.once.add(MODEL)


def fail_always(operated: Orchestrated) -> None:
    operated.change("person")
    operated.fake.broken[MODEL] = ValueError("x")


def mend(operated: Orchestrated) -> None:
    operated.fake.broken.clear()
    for epsilon in (LOW, HIGH):
        assert operated.refresh(epsilon).success


def edit(operated: Orchestrated, old: str, new: str) -> None:
    text = operated.path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    operated.path.write_text(text.replace(old, new), encoding="utf-8")
    operated.reload()


def edit_domain(operated: Orchestrated) -> None:
    edit(operated, "max: 110", "max: 120")


def accept_domain(operated: Orchestrated) -> None:
    for epsilon in (LOW, HIGH):
        assert operated.refresh(epsilon).success
        ran = {"/".join(key) for key in operated.fake.runs}
        assert ran == set(LINE_OF_PERSON)


def add_epsilon(operated: Orchestrated) -> None:
    edit(operated, "[0.8, 3.2]", "[0.8, 3.2, 1.6]")


def make_new_epsilon(operated: Orchestrated) -> None:
    assert operated.refresh(NEW).success


def add_table(operated: Orchestrated) -> None:
    rows = pq.read_table(operated.path.parent / "person.parquet").select(["id", "household_id", "age"])
    pq.write_table(rows.rename_columns(["id", "household_id", "years"]), operated.path.parent / "pet.parquet")
    with operated.path.open("a", encoding="utf-8") as spec:
        spec.write(
            "  pet:\n    primary_key: id\n    foreign_keys:\n"
            "      - {columns: household_id, references: household, max_children: 4, owner: true}\n"
            "    columns: {id: integer, household_id: integer, years: {type: integer, domain: {min: 0, max: 30}}}\n"
        )
    operated.reload()


def make_new_table(operated: Orchestrated) -> None:
    for epsilon in (LOW, HIGH, NEW):
        assert operated.refresh(epsilon).success


def new_leaf(operated: Orchestrated) -> None:
    path = operated.path.parent / "pet.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)


@dataclass(frozen=True)
class Event:
    """Something that happens, the runs that follow by themselves, and whether they cost anything."""

    happens: Callable[[Orchestrated], None]
    made: Made
    paid: bool = False


OPERATED = (
    Event(nothing, {}),
    Event(start, {}),
    Event(nothing, {}),
    Event(leaf, each(LINE_OF_PERSON, LOW, HIGH), paid=True),
    Event(root, each(LINE_OF_HOUSEHOLD, LOW, HIGH), paid=True),
    Event(keep, each(LINE_OF_PERSON, LOW, HIGH), paid=True),
    Event(restore, each(LINE_OF_PERSON, LOW, HIGH)),
    Event(make_again, {}),
    Event(edit_code, {}),
    Event(refit, each(LINE_OF_PERSON[2:], LOW)),
)
EDITED = (
    Event(start, {}),
    Event(fail_once, each(LINE_OF_PERSON, LOW, HIGH), paid=True),
    Event(fail_always, each(["profile/person"], LOW, HIGH), paid=True),
    Event(mend, {}),
    Event(edit_domain, {}),
    Event(accept_domain, {}),
    Event(add_epsilon, {}),
    Event(leaf, each(LINE_OF_PERSON, LOW, HIGH), paid=True),
    Event(make_new_epsilon, {}),
    Event(leaf, each(LINE_OF_PERSON, LOW, HIGH, NEW), paid=True),
    Event(add_table, {}),
    Event(make_new_table, {}),
    Event(new_leaf, each(LINE_OF_PET, LOW, HIGH, NEW), paid=True),
)


@pytest.mark.parametrize("life", [OPERATED, pytest.param(EDITED, marks=pytest.mark.slow)], ids=["operated", "edited"])
def test_what_runs_after_each_event(operated: Orchestrated, life: tuple[Event, ...]) -> None:
    for number, event in enumerate(life):
        said = f"{number}: {event.happens.__name__}"
        event.happens(operated)
        spent = operated.spent()
        operated.observe()
        assert operated.settle() == event.made, said
        assert (operated.spent() > spent) == event.paid, said


def test_two_changes_while_the_first_refresh_is_running_end_with_the_last_state(settled: Orchestrated) -> None:
    settled.settle()
    seen: list[dict[str, list[str]]] = []

    def change_twice() -> None:
        for _ in range(2):
            settled.change("person")
            settled.observe()
            seen.append(settled.tick())

    settled.change("person")
    settled.observe()
    settled.fake.during[MODEL] = change_twice
    before = settled.spent()
    settled.tick()
    assert settled.answer(LOW).success
    once = settled.spent() - before
    assert seen == [{}, {}], "nothing is asked for while a run is at work"
    assert settled.settle() == each(LINE_OF_PERSON, LOW)
    settled.observe()
    assert settled.settle() == {}
    assert settled.refresh(LOW).success
    assert settled.fake.runs == [("publish", "bundle")]  # all else is of the last state, and bought
    assert settled.spent() == pytest.approx(before + 2 * once)


def test_a_refresh_that_cannot_be_paid_in_full_is_refused_before_its_first_paid_step(operated: Orchestrated) -> None:
    edit(operated, "lifetime: {epsilon: 20", "lifetime: {epsilon: 3.6")
    assert operated.refresh(HIGH).success
    spent = operated.spent()
    operated.change("person")  # its profile alone could still be paid
    refused = operated.refresh(HIGH)
    assert not refused.success
    assert operated.spent() == spent
    assert {"profile/household", "model/household"} <= versions(refused).keys()  # bought before
    assert "model/person" not in versions(refused)
    said = re.search(
        r"this refresh at ε=3.2: .*\(costs ρ=([\d.]+), ρ=([\d.]+) of \S+ is left: short by ([\d.]+);", errors(refused)
    )
    assert said, errors(refused)
    price, left, short = map(float, said.groups())
    assert short == pytest.approx(price - left, rel=1e-3)
    assert price == pytest.approx(spent / 2, rel=1e-3)
    alone = operated.refresh(HIGH, ["profile/person"])
    assert alone.success
    assert operated.spent() == pytest.approx(1.25 * spent, rel=1e-3)
