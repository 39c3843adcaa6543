"""What a new owner meets first: the interview, and a plan that speaks of rows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from privbench_core.backends.folder import FolderSource
from privbench_core.commands import run as command
from privbench_core.commands import status
from privbench_core.errors import SourceError
from privbench_core.pipeline.rehearsal import source_state
from privbench_core.pipeline.snapshot import Snapshot
from privbench_core.pipeline.workspace import Workspace
from privbench_core.spec.load import load_spec
from tests.helpers.drafts import call, csv_folder, duckdb_file


def test_plan_speaks_of_rows_and_hides_what_is_free(town_spec: Path) -> None:
    text = call("plan", town_spec).stdout
    assert not re.search(r"^ (sample|validate|publish)", text, re.MULTILINE)
    assert "± rows, ε=0.8" in text
    assert re.search(r"person +4 +\d+ × T", text)  # what a unit of several rows can do
    assert (
        call("run", town_spec, "--accept-noise", "--epsilon", 3.2, "--out", town_spec.parent / "bundle").exit_code == 0
    )
    again = call("plan", town_spec, "--epsilon", 3.2, "--synthesizer", "privspn", "--delta", "1e-9").stdout
    assert "what privspn measures" in again
    assert re.search(r"household +1 +about \d+ of \d+", again)  # a released number, never an exact one
    assert "at the released numbers of rows" in again
    small = call("plan", town_spec, "--epsilon", 0.01).stdout
    assert re.search(r"household +\d+ +all noise; more from [\d,]+", small)
    assert "ε=0.01 is not among the spec's epsilons: privbench run needs --undeclared-epsilon for it." in small


def test_a_plan_says_what_to_expect_of_each_table_or_how_many_units_it_takes(town_spec: Path) -> None:
    needed = call("plan", town_spec, "--epsilon", 0.8).stdout
    assert re.search(r"^ person +([\d,]+ / ){2}[\d,]+ *$", needed, re.MULTILINE)
    assert "state rough public numbers of rows: --rows household=2000 --rows .." in needed
    few = call("plan", town_spec, "--epsilon", 0.8, "--rows", "household=40", "--rows", "person=100").stdout
    assert re.search(r"person +100 +all noise; more from [\d,]+", few)
    many = call("plan", town_spec, "--epsilon", 0.8, "--rows", "household=4e5", "--rows", "person=1_000_000")
    assert re.search(r"person +1,000,000 +pairs and joins *$", many.stdout, re.MULTILINE)
    data = call("plan", town_spec, "--rows", "household=4e5", "--json").stdout
    found = json.loads(data)["plans"][0]["expectations"]
    assert (found["household"]["expected"], found["person"]["expected"]) == ("pairs and joins", None)
    assert list(found["person"]["effective_units_needed"]) == [
        "number of rows only", "single columns", "pairs and joins"
    ]  # fmt: skip
    for wrong, said in {
        "persn=3": "no private table 'persn'; did you mean 'person'?",
        "person=many": "not a number of rows; write it like person=50000",
        "person=3": "say how many rows the unit's table has, like --rows household=2000",
    }.items():
        assert said in call("plan", town_spec, "--rows", wrong).stderr


def test_a_report_can_say_whether_the_source_has_changed(town_spec: Path) -> None:
    spec, bundle = load_spec(town_spec), town_spec.parent / "bundle"
    assert source_state(spec, bundle).startswith("It is not known here")
    assert call("run", town_spec, "--accept-noise", "--epsilon", 3.2, "--out", bundle).exit_code == 0
    assert source_state(spec, bundle) == "The source is as it was when the bundle was made."
    rows = pq.read_table(town_spec.parent / "person.parquet")
    pq.write_table(rows.slice(1), town_spec.parent / "person.parquet")
    assert source_state(spec, bundle) == "The source or the spec has changed since the bundle was made: person."


def test_a_check_that_can_never_hold_is_found_before_anything_is_paid(town_spec: Path) -> None:
    text = town_spec.read_text(encoding="utf-8")
    check = "  household:\n    checks: [{name: old, expression: rooms > 200}]\n"
    town_spec.write_text(text.replace("  household:\n", check, 1), encoding="utf-8")
    for given in (("plan", town_spec), ("run", town_spec, "--epsilon", 0.8, "--out", town_spec.parent / "bundle")):
        result = call(*given)
        assert result.exit_code == 1
        assert "household: the check old can never hold: rooms is declared to be at most 8" in result.stderr
    assert not (town_spec.parent / "bundle").exists()


def test_a_stopped_run_says_what_it_cost(town_spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(spec, epsilon, *, workspace, **_):
        from privbench_core.pipeline import plan_for, run_name

        first, second, *_ = (step for step in plan_for(spec, epsilon).steps if step.kind == "profile")
        for step in (first, second):
            number = workspace.ledger.reserve(step.table, "/".join(step.key), run_name(epsilon), step.price)
            if step is first:
                workspace.ledger.release(number, "digest")
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_spec", stopped)
    result = call("run", town_spec, "--epsilon", 0.8, "--out", town_spec.parent / "bundle")
    assert result.exit_code == 130
    said = r"privbench: stopped; releases so far are kept: 1 step of this run \(0\.\d+% of the lifetime budget\);"
    assert re.match(said + r" profile/person had begun: its price counts as spent \(0\.\d+%\)", result.stderr)


def test_a_stopped_refresh_says_what_it_cost(town_spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(workspace, state, _):
        step = state.plan.step(("profile", "household"))
        workspace.ledger.reserve(step.table, "/".join(step.key), "epsilon=0.8", step.price)
        raise KeyboardInterrupt

    monkeypatch.setattr(status, "refresh_release", stopped)
    result = call("refresh", town_spec, "--epsilon", 0.8)
    assert result.exit_code == 130
    assert re.search(r"kept: profile/household had begun: its price counts as spent \(0\.\d+%\)", result.stderr)
    monkeypatch.setattr(status, "refresh_release", interrupted)
    assert "this run had not paid for anything" in call("refresh", town_spec, "--epsilon", 0.8).stderr


def interrupted(*_):
    raise KeyboardInterrupt


def test_the_interview_asks_at_most_five_questions_and_writes_a_spec_that_loads(town_spec: Path) -> None:
    out = town_spec.parent / "asked" / "spec.yaml"
    (town_spec.parent / "zone.csv").write_text("code\nnorth\n", encoding="utf-8")
    answers = "nobody\n\nnothing\nzone\n0.8, x\n0.8\n5\nthere\nn\n"
    result = call("init", town_spec.parent, "--interactive", "-o", out, answers=answers)
    assert result.exit_code == 0, result.output
    assert set(re.findall(r"^(?:.*: )?([1-9])\. ", result.stdout, re.MULTILINE)) <= set("12345")
    assert "There is no table nobody" in result.stdout
    assert "Not among these tables: nothing" in result.stdout
    assert "± rows, ε=0.8" in result.stdout
    assert f"Later: privbench run {out} --epsilon 0.8 --out there" in result.stdout
    spec = load_spec(out)
    assert (spec.schema.unit, spec.epsilons, spec.lifetime_epsilon) == ("household", (0.8,), 5)
    assert spec.schema.table("zone").public
    assert spec.schema.table("person").owner_key is not None
    assert call("init", town_spec.parent).exit_code == 2


def test_the_interview_asks_for_bounds_that_only_the_owner_can_promise_and_offers_to_run(tmp_path: Path) -> None:
    sql = """
create table employee(id integer primary key, boss integer references employee(id), team varchar);
create table memo(id integer primary key, author integer not null references employee(id),
    reader integer references employee(id));
create table note(id integer primary key, memo integer not null references memo(id),
    cited integer not null references memo(id))
"""
    source, out = duckdb_file(tmp_path, sql), tmp_path / "spec.yaml"
    answers = "employee\nmany\n7\n0\n\ny\n9\n0.8\n5\nthere\nn\n"
    result = call("init", source, "--interactive", "-o", out, answers=answers)
    assert result.exit_code == 0, result.output
    assert "rows of employee refer to one of them by boss" in result.stdout
    assert "rows of memo refer to a row of employee by reader" in result.stdout
    assert "do the rows of note that refer to it by cited stay, without this reference?" in result.stdout
    assert "rows of note refer to rows of memo of one unit by cited" in result.stdout
    assert result.stdout.count("Write numbers above 0") == 2
    assert "Run this plan now at ε=0.8?" in result.stdout
    spec = load_spec(out)
    assert [key.max_children for key in spec.schema.table("employee").foreign_keys] == [7]
    bounds = {key.columns: key.max_children for key in spec.schema.table("memo").foreign_keys}
    assert bounds == {("author",): 1000, ("reader",): 1000}
    assert spec.schema.table("note").foreign_keys[1].max_children_per_unit == 9
    assert "nothing enforces the bound" in out.read_text(encoding="utf-8")


def test_the_interview_presets_no_table_as_public_whose_rows_may_be_about_persons(tmp_path: Path) -> None:
    """Nor any other: pressing Enter publishes nothing, and what is named is published alone."""
    sql = """
create table district(id integer primary key, name varchar);
create table client(id integer primary key, district integer references district(id));
create table account(id integer primary key, district integer references district(id));
create table disposition(id integer primary key, client integer not null references client(id),
    account integer not null references account(id));
create table loan(id integer primary key, account integer not null references account(id));
create table reminder(id integer primary key, loan integer not null references loan(id), sent date);
"""
    source, out = duckdb_file(tmp_path, sql), tmp_path / "spec.yaml"
    result = call("init", source, "--interactive", "-o", out, answers="\ndistrict\n\n\n\n\n")
    assert "both disposition (client data) and loan (not client data) refer to it" in result.stdout
    written = out.read_text(encoding="utf-8")
    assert "  public:\n    - district # published as it is\n    - CHOOSE # decide" in written
    assert "To fill in, 1" in result.stdout
    assert "privacy.public: account, loan, reminder" in result.stdout


def test_a_run_says_of_all_tables_at_once_what_their_source_has_wrong(tmp_path: Path) -> None:
    orders = "id;customer_id;price;laps\n1;1;2.5;one\n2;1;free;2"
    csv_folder(tmp_path, {"customers": "id;votes\n1;many\n2;3", "orders": orders})
    spec = tmp_path / "spec.yaml"
    assert call("init", tmp_path, "-o", spec).exit_code == 0
    result = call("run", spec, "--epsilon", "0.8", "--out", tmp_path / "bundle")
    assert result.exit_code == 1
    wrong = re.findall(r"(\w+\.\w+): some values", result.stderr)
    assert sorted(wrong) == ["customers.votes", "orders.laps", "orders.price"]
    assert "free" not in result.stderr


def test_what_is_wrong_with_a_public_table_makes_nobody_read_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"customers": "id,votes\n1,many", "orders": "id,customer_id,shop_id\n1,1,1"}
    csv_folder(tmp_path, files | {"shops": "id,area\n1,large", "towns": "id,population\n1,most"})
    out = tmp_path / "spec.yaml"
    options = ("--unit", "customers", "--public", "shops,towns")
    assert call("init", tmp_path, "-o", out, *options).exit_code == 0
    draft = out.read_text(encoding="utf-8")
    out.write_text(re.sub("(area|population): {type: text", r"\1: {type: float", draft), encoding="utf-8")
    read: list[str] = []
    found = FolderSource.read
    monkeypatch.setattr(FolderSource, "read", lambda self, table: (read.append(table.name), found(self, table))[1])
    workspace = Workspace(load_spec(out))
    with pytest.raises(SourceError) as caught:
        _ = Snapshot(workspace).public
    workspace.close()
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == ["shops.area", "towns.population"]
    assert set(read) == {"shops", "towns"}
