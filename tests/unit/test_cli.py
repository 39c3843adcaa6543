"""The command line: names, options, exit codes, what is printed, and what is never printed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from privbench_core import __version__
from privbench_core.cli import app
from privbench_core.commands.demo import EXAMPLES
from privbench_core.errors import InternalError, LedgerError, NoiseOnlyError, SourceError
from privbench_core.pipeline.workspace import Workspace
from privbench_core.privacy.budget import Budget
from privbench_core.publishing import read_bundle
from privbench_core.spec.load import load_spec
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.artifact import Artifact
from tests.helpers.fake_synthesizer import FakeSynthesizer

SPEC = """\
database: shop
source: .
privacy: {unit: customer, delta: 1.0e-9, epsilons: [0.5, 1], lifetime: {epsilon: 2, delta: 1.0e-8}}
tables:
  customer:
    primary_key: id
    columns:
      id: integer
      age: {type: integer, domain: {min: 0, max: 99}}
      plan: {type: category, domain: {values: [free, paid]}}
  purchase:
    primary_key: id
    foreign_keys: [{columns: customer_id, references: customer, max_children: 4, owner: true}]
    columns:
      id: integer
      customer_id: integer
      amount: {type: integer, domain: {min: 0, max: 500}}
"""
CUSTOMERS, PURCHASES = 60, 120
pytestmark = pytest.mark.usefixtures("fake")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec with its data."""
    monkeypatch.delenv("PRIVBENCH_DEBUG", raising=False)
    rng = np.random.default_rng(1)
    ids = np.arange(CUSTOMERS) + 1000
    customer = {"id": ids, "age": rng.integers(18, 90, CUSTOMERS), "plan": rng.choice(["free", "paid"], CUSTOMERS)}
    purchase = {"id": np.arange(PURCHASES), "customer_id": np.repeat(ids, 2), "amount": rng.integers(0, 90, PURCHASES)}
    pq.write_table(pa.table(customer), tmp_path / "customer.parquet")
    pq.write_table(pa.table(purchase), tmp_path / "purchase.parquet")
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    return spec


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def data_of(*arguments: object) -> Any:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def bundle_of(shop: Path, *options: object) -> Path:
    out = shop.parent / "bundle"
    result = call("run", shop, "--epsilon", 1, "--out", out, *options)
    assert result.exit_code == 0, result.stderr
    return out


def test_version_and_help_name_every_command() -> None:
    assert call("--version").stdout == f"privbench {__version__}\n"
    shown = call("--help").stdout
    assert all(name in shown for name in ("init", "plan", "run", "evaluate", "publish", "ledger", "demo"))


def test_plan_prices_sum_to_the_budget_and_reads_no_row(shop: Path) -> None:
    for file in shop.parent.glob("*.parquet"):
        file.unlink()
    found = data_of("plan", shop)
    assert [plan["epsilon"] for plan in found["plans"]] == [0.5, 1.0]
    for plan in found["plans"]:
        assert sum(step["price"]["amount"] for step in plan["steps"]) == pytest.approx(plan["total"]["amount"])
        assert sum(step["share"] for step in plan["steps"]) == pytest.approx(1)
    assert found["plans"][1]["guarantee"]["replace_one_unit"]["epsilon"] == 2.0
    assert not (shop.parent / ".privbench").exists()
    text = call("plan", shop, "--epsilon", 1).stdout
    assert "customer" in text
    assert "25%" in text
    assert "No row was read" in text


STRANGE = "checks: [{name: adult, expression: age >= 18}, {name: strange, expression: md5(plan) > ''}]"


@pytest.mark.parametrize(
    ("key", "said", "declared", "named"),
    [
        ("unenforced_checks", "does not enforce", STRANGE, ["customer.strange"]),
        ("drawn_in_one_piece", "drawn in one piece, even beyond", "unique: [[age]]", ["customer", "purchase"]),
    ],
)
def test_plan_names_unenforced_checks_and_tables_that_are_drawn_in_one_piece(
    shop: Path, key: str, said: str, declared: str, named: list[str]
) -> None:
    assert data_of("plan", shop)[key] == []
    assert said not in call("plan", shop).stdout
    shop.write_text(
        SPEC.replace("    primary_key: id\n", f"    primary_key: id\n    {declared}\n", 1), encoding="utf-8"
    )
    assert data_of("plan", shop)[key] == named
    (line,) = [line for line in call("plan", shop).stdout.splitlines() if said in line]
    assert line.endswith(f": {', '.join(named)}")


def test_plan_says_which_keys_stay_inside_of_a_unit_and_what_the_others_cost(shop: Path) -> None:
    assert data_of("plan", shop)["stability_above_one"] == {}
    assert "scaled up" not in call("plan", shop).stdout
    refund = """
  refund:
    primary_key: id
    foreign_keys:
      - {columns: customer, references: customer, max_children: 2, owner: true}
      - {columns: purchase, references: purchase, %s}
    columns: {id: integer, customer: integer, purchase: integer}
"""
    shop.write_text(SPEC.rstrip() + refund % "same_unit: true", encoding="utf-8")
    found = data_of("plan", shop)
    assert (found["keys_inside_of_a_unit"], found["stability_above_one"]) == (["refund.purchase"], {})
    assert "rows that break this are ignored): refund.purchase" in " ".join(call("plan", shop).stdout.split())
    shop.write_text(SPEC.rstrip() + refund % "max_children: 3", encoding="utf-8")
    found = data_of("plan", shop)
    assert found["keys_inside_of_a_unit"] == []
    assert found["stability_above_one"]["refund"] > 1
    said = " ".join(call("plan", shop).stdout.split())
    assert (
        "refund 25 times: removing a unit also removes up to 12 rows of other units, along refund.purchase (4" in said
    )
    optional = refund.replace("purchase: integer}", "purchase: {type: integer, nullable: true}}")
    shop.write_text(SPEC.rstrip() + optional % "max_children: 3, optional: true", encoding="utf-8")
    assert data_of("plan", shop)["stability_above_one"] == {"refund.purchase": 25}
    said = " ".join(call("plan", shop).stdout.split())
    assert "refund.purchase 25 times: only counts along this key: up to 12 rows of other units lose" in said


def test_plan_says_when_the_lifetime_budget_cannot_pay(shop: Path) -> None:
    affordable, too_much = (data_of("plan", shop, "--epsilon", e)["plans"][0]["lifetime"] for e in (1, 5))
    assert affordable["affordable"]
    assert affordable["spent"] == 0
    assert 0 < affordable["spent_after"] <= affordable["epsilon"]
    assert not too_much["affordable"]
    assert "too little is left" in call("plan", shop, "--epsilon", 5).stdout


def test_run_tells_where_the_bundle_is_and_a_second_run_pays_nothing(shop: Path) -> None:
    out = shop.parent / "bundle"
    first = data_of("run", shop, "--epsilon", 1, "--out", out)
    assert first["rows"].keys() == {"customer", "purchase"}
    assert first["cost"]["paid"] > 0
    assert first["cost"]["reused"] == 0
    second = data_of("run", shop, "--epsilon", 1, "--out", out, "--scale", 2, "--seed", 7)
    assert second["rows"]["customer"] == pytest.approx(2 * first["rows"]["customer"], abs=1)
    assert second["cost"] == {"measure": "gdp", "paid": 0, "reused": pytest.approx(first["cost"]["paid"])}
    assert second["lifetime"] == first["lifetime"]
    text = call("run", shop, "--epsilon", 1, "--out", out)
    assert "nothing was paid again" in text.stdout
    assert str(out) in text.stdout
    assert text.stderr == ""


def test_run_in_pure_budget_prices_in_epsilon(shop: Path) -> None:
    assert "(ε=1)" in call("run", shop, "--epsilon", 1, "--delta", 0, "--out", shop.parent / "bundle").stdout


def test_run_refuses_what_the_lifetime_cannot_pay_before_it_spends_anything(shop: Path) -> None:
    result = call("run", shop, "--epsilon", 4, "--out", shop.parent / "bundle")
    assert result.stderr.startswith(
        "privbench: epsilon 4: the spec lists epsilons: [0.5, 1]; add it there, or pass --und"
    )
    assert not load_spec(shop).state.exists()
    result = call("run", shop, "--epsilon", 4, "--undeclared-epsilon", "--out", shop.parent / "bundle")
    assert result.exit_code == 1
    assert re.match(r"privbench: the run at ε=4: costs \d+\.\d% of the lifetime budget, but ", result.stderr)
    assert "aise privacy.lifetime" not in result.stderr
    assert not (shop.parent / "bundle").exists()
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        (["--epsilon", "0"], 1, "not positive"),
        (["--epsilon", "inf"], 1, "finite"),
        (["--epsilon", "1", "--scale", "0"], 1, "scale: 0.0 is not positive"),
        (["--epsilon", "1", "--delta", "1"], 1, "delta must be in [0, 1)"),
        (["--epsilon", "1", "--seed", "-1"], 2, "--seed"),
        (["--epsilon", "one"], 2, "--epsilon"),
        ([], 2, "--epsilon"),
    ],
)
def test_run_refuses_bad_options(shop: Path, options: list[str], code: int, expected: str) -> None:
    result = call("run", shop, "--out", shop.parent / "bundle", *options)
    assert result.exit_code == code
    assert expected in result.stderr
    assert not (shop.parent / "bundle").exists()


@pytest.mark.parametrize(("place", "expected"), [("spec.yaml", "name a folder"), (".", "is not a bundle")])
def test_run_refuses_a_place_that_holds_something_else_before_it_pays(shop: Path, place: str, expected: str) -> None:
    result = call("run", shop, "--epsilon", 1, "--out", shop.parent / place)
    assert result.exit_code == 1
    assert expected in result.stderr
    assert shop.read_text(encoding="utf-8") == SPEC
    assert not (shop.parent / ".privbench").exists()


def test_every_problem_of_a_spec_stands_on_a_line_of_its_own(shop: Path) -> None:
    wrong = SPEC.replace("age: {type: integer", "age: {type: intger").replace("unit: customer", "unit: custmer")
    shop.write_text(wrong, encoding="utf-8")
    result = call("plan", shop)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert re.fullmatch(r"privbench: \d+ problems in the spec", lines[0])
    assert any("customer.age" in line for line in lines[1:])
    assert any("did you mean 'customer'" in line for line in lines[1:])


def test_private_detail_is_for_the_owner_and_stands_after_the_message(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SourceError("customer.id: is not unique; fix the source", private_detail="3 rows")

    monkeypatch.setattr("privbench_core.commands.run.run_spec", refuse)
    result = call("run", shop, "--epsilon", 1, "--out", shop.parent / "bundle")
    assert result.exit_code == 1
    assert result.stderr == "privbench: customer.id: is not unique; fix the source\nowner only: 3 rows\n"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyboardInterrupt(), "stopped; releases so far are kept"),
        (OSError(28, "No space left on device", "part"), "part: No space left on device"),
        (MemoryError(), "not enough memory"),
        (LedgerError("the ledger cannot be used (disk I/O error)"), "the ledger cannot be used"),
        (InternalError("steps disagree"), "please report it"),
        (KeyError("secret-value"), "unexpected KeyError"),
    ],
)
def test_any_failure_is_one_line_without_traceback_or_values(
    shop: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, expected: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("privbench_core.commands.run.run_spec", fail)
    result = call("run", shop, "--epsilon", 1, "--out", shop.parent / "bundle")
    assert result.exit_code == (130 if isinstance(error, KeyboardInterrupt) else 1)
    assert expected in result.stderr
    assert result.stderr.count("\n") == 1
    assert "secret-value" not in result.output


def test_debug_shows_the_traceback(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVBENCH_DEBUG", "1")
    result = call("plan", shop.parent / "none.yaml")
    assert isinstance(result.exception, Exception)
    assert not isinstance(result.exception, SystemExit)


def test_ledger_lists_what_runs_paid(shop: Path) -> None:
    assert "nothing is spent" in call("ledger", shop).stdout
    assert not (shop.parent / ".privbench").exists()
    paid = data_of("run", shop, "--epsilon", 0.5, "--out", shop.parent / "bundle")
    found = data_of("ledger", shop)
    steps = [f"{kind}/{table}" for table in ("customer", "purchase") for kind in ("profile", "model")]
    assert [entry["step"] for entry in found["entries"]] == steps
    assert sum(entry["amount"] for entry in found["entries"]) == pytest.approx(paid["cost"]["paid"])
    assert found["spent"] + found["left"] == pytest.approx(2)
    assert found["reserved"] == {}
    text = call("ledger", shop).stdout
    assert "ε=0.5" in text
    assert "Reserved" not in text


def test_ledger_shows_a_killed_step_as_reserved(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> Artifact:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Artifact, "to_bytes", killed)
        assert call("run", shop, "--epsilon", 0.5, "--out", shop.parent / "bundle").exit_code == 130
    assert data_of("ledger", shop)["entries"][0]["state"] == "reserved"
    assert "Reserved: ρ=" in call("ledger", shop).stdout


def test_a_renamed_database_is_told_what_the_ledger_holds(shop: Path) -> None:
    assert data_of("ledger", shop)["other_databases"] == []
    call("run", shop, "--epsilon", 1, "--out", shop.parent / "bundle")
    steps = len(data_of("ledger", shop)["entries"])
    assert "Other databases" not in call("ledger", shop).stdout + call("plan", shop).stdout
    text = shop.read_text()
    shop.write_text(text.replace("database: shop", "database: store"))
    (other,) = data_of("ledger", shop)["other_databases"]
    assert (other["database"], other["entries"]) == ("shop", steps)
    for command in ("plan", "ledger"):
        said = " ".join(call(command, shop).stdout.split())
        assert f"Other databases in the same ledger, with separate budgets: shop ({steps} paid steps, the last" in said
        assert "If store is one of them under a new name, restore the old name" in said
    shop.write_text(text)
    assert "Other databases" not in call("ledger", shop).stdout  # for the other name nothing was paid


def test_ledger_adds_up_refreshes_of_the_same_step(shop: Path) -> None:
    bundle_of(shop, "--epsilon", 0.5)
    rows = pq.read_table(shop.parent / "customer.parquet")
    pq.write_table(
        rows.slice(0, CUSTOMERS).set_column(1, "age", pa.array([30] * CUSTOMERS)), shop.parent / "customer.parquet"
    )
    bundle_of(shop, "--epsilon", 0.5)
    line = next(line for line in call("ledger", shop).stdout.splitlines() if "profile/customer" in line)
    assert re.search(r"\s2\s+released", line)


def test_evaluate_writes_an_internal_report_outside_the_bundle(shop: Path) -> None:
    bundle = bundle_of(shop)
    workload = shop.parent / "queries.sql"
    workload.write_text(
        """-- a comment; with a semicolon
        SELECT count(*) FROM customer WHERE age < 50;
        SELECT count(*) FROM customer c JOIN purchase p ON p.customer_id = c.id WHERE c.plan = 'paid';
        SELECT count(*) FROM nowhere;
        SELECT age FROM customer;
        DROP TABLE customer;
        SELECT count(*) FROM read_csv('spec.yaml');
        """,
        encoding="utf-8",
    )
    out = shop.parent / "report"
    result = call("evaluate", shop, bundle, "--workload", workload, "--out", out)
    assert result.exit_code == 0, result.stderr
    assert "Internal" in result.stdout
    found = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    assert found["notice"].startswith("Internal")
    assert 0 < found["tables"]["customer"]["tvd"]["2"] <= 1
    assert found["tables"]["customer"]["tvd"]["3"] is None
    assert 0 < found["foreign_keys"]["purchase.customer_id"]["fanout_tvd"] <= 1
    assert found["workload"]["answered"] == 3
    assert [failure["query"] for failure in found["workload"]["failed"]] == [3, 5, 6]
    assert found["workload"]["queries"][1]["source"] <= PURCHASES
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.index("Do not publish") < page.index("<h1>") < page.index('class="verdict') < page.index("<svg")
    assert not re.search(r"""(src|href)=["']?https?:""", page)


def test_evaluate_writes_into_no_bundle_and_reads_neither_one_of_another_spec_nor_what_is_no_workload(
    shop: Path,
) -> None:
    bundle, workload, out = bundle_of(shop), shop.parent / "queries.sql", shop.parent / "report"
    before = sorted(bundle.rglob("*"))

    def refused(*arguments: object) -> str:
        result = call("evaluate", shop, *arguments)
        assert result.exit_code == 1
        return result.stderr

    for inside in (".", "report", "data/deep/report"):
        assert "internal" in refused(bundle, "--out", bundle / inside)
    assert sorted(bundle.rglob("*")) == before
    assert "cannot be read" in refused(shop.parent, "--workload", workload, "--out", out)
    for text, expected in (("", "holds no query"), ("select 'open", "not SQL")):
        workload.write_text(text, encoding="utf-8")
        assert expected in refused(shop.parent, "--workload", workload, "--out", out)
    shop.write_text(SPEC.replace("age:", "years:"), encoding="utf-8")
    assert "customer.years is missing" in refused(bundle, "--out", out)


def test_evaluate_divides_counts_by_the_scale(shop: Path) -> None:
    bundle = bundle_of(shop, "--scale", 3)
    workload = shop.parent / "queries.sql"
    workload.write_text("select count(*) from customer", encoding="utf-8")
    found = data_of("evaluate", shop, bundle, "--workload", workload, "--out", shop.parent / "report")
    assert found == json.loads((shop.parent / "report" / "metrics.json").read_text(encoding="utf-8"))
    source, synthetic = found["tables"]["customer"]["rows"]
    share = synthetic / (3 * source)
    assert found["workload"]["q_error"]["max"] == pytest.approx(max(share, 1 / share), rel=0.02)


def test_publish_loads_a_bundle_and_replaces_only_if_told(shop: Path) -> None:
    bundle, target = bundle_of(shop), shop.parent / "target.duckdb"
    rows = data_of("publish", bundle, target)["rows"]
    assert rows == {name: entry["rows"] for name, entry in read_bundle(bundle).manifest["tables"].items()}
    assert call("publish", bundle, target).exit_code == 1
    assert "customer" in call("publish", bundle, target, "--replace").stdout
    with duckdb.connect(str(target)) as connection:
        assert connection.execute("select count(*) from purchase").fetchall() == [(rows["purchase"],)]


def test_init_writes_a_spec_and_never_overwrites_one(shop: Path) -> None:
    out = shop.parent / "new" / "spec.yaml"
    result = call("init", shop.parent, "-o", out)
    assert result.exit_code == 0, result.stderr
    assert "Nothing is left to fill in" in out.read_text(encoding="utf-8")
    assert "customer" in out.read_text(encoding="utf-8")
    again = call("init", shop.parent, "-o", out)
    assert again.exit_code == 1
    assert "exists" in again.stderr


def test_init_proposes_domains_from_public_examples_only(shop: Path) -> None:
    examples, out = shop.parent / "examples", shop.parent / "new.yaml"
    examples.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "age": [31, 47], "plan": ["gold", "silver"]}), examples / "customer.parquet")
    result = call("init", shop.parent, "-o", out, "--sample-dir", examples)
    assert result.exit_code == 0, result.stderr
    assert "Read only the catalogue and the public example data." in result.stdout
    draft = out.read_text(encoding="utf-8")
    assert "gold" in draft
    assert "47" in draft
    assert "free" not in draft
    missing = call("init", shop.parent, "-o", shop.parent / "other.yaml", "--sample-dir", shop.parent / "none")
    assert missing.exit_code == 1
    assert "samples: " in missing.stderr
    assert not (shop.parent / "other.yaml").exists()


def test_demo_keeps_what_the_user_edited_and_pays_once(shop: Path, fake: FakeSynthesizer) -> None:
    folder, fake.most = shop.parent / "demo", 100
    first = call("demo", "--dir", folder)
    assert first.exit_code == 0, first.stderr
    assert re.search(r"paid \d\.\d% of the lifetime budget \(ρ=", first.stdout)
    assert first.stdout.count(", source") == first.stdout.count(", synthetic") == len(EXAMPLES["households"].shown)
    edited = (folder / "spec.yaml").read_text(encoding="utf-8") + "# mine\n"
    (folder / "spec.yaml").write_text(edited, encoding="utf-8")
    again = call("demo", "--dir", folder)
    assert "nothing was paid again" in again.stdout
    assert (folder / "spec.yaml").read_text(encoding="utf-8") == edited
    assert (folder / "bundle" / "MANIFEST.json").exists()
    assert "other files than this example" in call("demo", "--dir", folder, "--example", "shop").stderr
    assert "there are households and shop" in call("demo", "--dir", folder, "--example", "bank").stderr


def test_demo_refuses_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    result = call("demo", "--dir", tmp_path)
    assert result.exit_code == 1
    assert "--dir" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_exit_codes_and_streams_of_a_real_process(tmp_path: Path) -> None:
    def process(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "privbench_core", *arguments]
        here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PRIVBENCH_DEBUG": "", **variables}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=here, timeout=300, check=False)

    assert process("--version").returncode == 0
    failed = process("plan", "none.yaml")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("privbench: none.yaml")
    assert failed.stderr.count("\n") == 1
    assert process("nonsense").returncode == 2
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    plain = process("ledger", "spec.yaml", PYTHONIOENCODING="ascii")
    assert (plain.returncode, plain.stderr) == (0, "")
    assert "?=2" in plain.stdout


def grown(shop: Path, age: int) -> None:
    """A refresh of the source: everybody gets the same age."""
    path = shop.parent / "customer.parquet"
    pq.write_table(pq.read_table(path).set_column(1, "age", pa.array([age] * CUSTOMERS)), path)


def declare(shop: Path, *terms: str) -> None:
    """The spec with more under ``privacy``."""
    shop.write_text(SPEC.replace("privacy: {", f"privacy: {{{', '.join(terms)}, "), encoding="utf-8")


def test_plan_and_ledger_say_what_a_refresh_costs_and_how_many_are_left(shop: Path) -> None:
    declare(shop, "refresh: {epsilon: 1.2, times: 2}")
    found = data_of("plan", shop)["refreshes"]
    assert (found["begun"], found["left"], found["refusal"]) == (0, 2, None)
    prices = [plan["total"]["amount"] for plan in data_of("plan", shop)["plans"]]
    assert found["price"]["amount"] == pytest.approx(sum(prices))
    assert 1 < found["price"]["epsilon"] < 1.2
    text = call("plan", shop).stdout
    assert "Refresh policy: ε=1.2 for each of 2 refreshes" in text
    assert re.search(r"A refresh of all 2 ε costs [\d.]+% of the lifetime budget \(ρ=", text)
    assert "2 more such refreshes can be paid for." in text
    assert not (shop.parent / ".privbench").exists()
    for epsilon in (0.5, 1):
        bundle_of(shop, "--epsilon", epsilon)
    assert data_of("ledger", shop)["refreshes"]["begun"] == 1
    for command in (["plan", shop], ["ledger", shop], ["run", shop, "--epsilon", 1, "--out", shop.parent / "bundle"]):
        assert "Warning: the next refresh (number 2) is the last that is affordable." in call(*command).stdout


def test_status_and_refresh_price_only_what_is_still_to_be_bought(shop: Path) -> None:
    def pending() -> tuple[float, dict[str, float]]:
        told = data_of("status", shop)
        prices = {"/".join(s["step"]): s["price"]["amount"] for s in told["releases"][1]["stale"]}
        return sum(prices.values()), {step: price for step, price in prices.items() if price}

    assert "a release at all ε costs" in data_of("status", shop)["headline"]
    whole, _ = pending()
    assert whole == pytest.approx(data_of("plan", shop)["plans"][1]["total"]["amount"])
    bundle_of(shop)  # a run of its own, at ε=1: it leaves no bundle in the state folder, but its steps are bought
    assert pending() == (0, {})
    low, high = data_of("status", shop)["releases"]
    assert (low["state"], low["released_at"]) == ("never released", None)
    assert (high["state"], high["why"], high["bundle"]) == ("up to date", "", str(shop.parent / "bundle"))
    said = " ".join(call("status", shop).stdout.split())
    assert "up to date at 1 (by privbench run); a refresh of all" in said
    assert f"ε=1: released by privbench run on {high['released_at'][:10]}. To have it refreshed" in said
    shown = call("refresh", shop, "--epsilon", 1, "--dry-run").stdout
    assert "bought before" in shown
    assert "ρ=" not in shown
    assert "nothing was paid, because all results were bought before" in call("refresh", shop, "--epsilon", 1).stdout
    grown(shop, 30)
    price, steps = pending()
    assert 0 < price <= whole
    assert "profile/customer" in steps
    told = data_of("status", shop)
    assert told["outdated"]["share_of_lifetime"] > 0
    assert call("refresh", shop).exit_code == 0
    after = data_of("status", shop)
    assert after["outdated"]["share_of_lifetime"] == 0
    assert after["lifetime"]["left"] < told["lifetime"]["left"]


def test_the_refresh_after_the_last_is_refused_before_anything_is_looked_at(shop: Path) -> None:
    declare(shop, "refresh: {epsilon: 1.2, times: 1}")
    bundle_of(shop)
    before = data_of("ledger", shop)["entries"]
    grown(shop, 30)
    told = data_of("status", shop)["releases"][1]
    assert (told["state"], told["why"]) == ("stale", "customer changed")
    refused = call("run", shop, "--epsilon", 1, "--out", shop.parent / "other")
    assert refused.exit_code == 1
    assert re.match(r"privbench: the run at ε=1: costs [\d.]+% of .* would begin refresh 2, but", refused.stderr)
    assert data_of("ledger", shop)["entries"] == before
    assert "Warning: the next refresh will be refused" in call("ledger", shop).stdout
    assert data_of("plan", shop)["plans"][1]["lifetime"]["affordable"] is False
    assert data_of("plan", shop)["plans"][0]["lifetime"]["affordable"] is True  # ε=0.5 has not had its first
    declare(shop, "refresh: {decay: 0.9}")
    short = call("run", shop, "--epsilon", 1, "--out", shop.parent / "other")
    assert re.search(
        r"privacy.refresh allows [\d.]+% of it up to refresh 2 .* is left: short by [\d.e-]+", short.stderr
    )


def test_a_lifetime_without_delta_after_one_with_it_is_refused_in_one_line(shop: Path) -> None:
    out = bundle_of(shop)
    before = json.loads((out / "MANIFEST.json").read_text(encoding="utf-8"))["privacy"]["guarantee"]
    assert before["all_releases_so_far"]["epsilon_at_most"] > 0
    pure = SPEC.replace("delta: 1.0e-9,", "delta: 0,").replace("{epsilon: 2, delta: 1.0e-8}", "{epsilon: 2}")
    shop.write_text(pure, encoding="utf-8")
    for command in (["run", shop, "--epsilon", 1, "--out", out], ["ledger", shop], ["plan", shop]):
        refused = call(*command)
        assert refused.exit_code == 1
        assert "delta 0 is less than what was already bought needs" in refused.stderr
        assert "put lifetime.delta back to 1e-08" in " ".join(refused.stderr.split())
        assert "Traceback" not in refused.stderr


def test_a_raised_lifetime_is_said_wherever_the_account_is(shop: Path) -> None:
    out = bundle_of(shop)
    for lower in (SPEC, SPEC.replace("lifetime: {epsilon: 2,", "lifetime: {epsilon: 1.5,")):
        shop.write_text(lower, encoding="utf-8")
        assert "was raised" not in call("ledger", shop).stdout + call("plan", shop).stdout
    assert data_of("ledger", shop)["lifetime"]["epsilon"] == 1.5
    shop.write_text(SPEC.replace("lifetime: {epsilon: 2,", "lifetime: {epsilon: 40,"), encoding="utf-8")
    for command in (["run", shop, "--epsilon", 1, "--out", out], ["ledger", shop], ["plan", shop], ["status", shop]):
        result = call(*command)
        assert result.exit_code == 0, result.stderr
        said = " ".join(result.stdout.split())
        assert "Warning: privacy.lifetime was raised on 20" in said
        assert "from ε=1.5, δ=1e-08 (declared on 20" in said
        assert "to ε=40, δ=1e-08" in said
    listed = " ".join(call("ledger", shop).stdout.split())
    assert re.search(r"Declared: ε=2, δ=1e-08 on 20\S+, ε=1\.5, δ=1e-08 on 20\S+, ε=40, δ=1e-08 on 20", listed)
    assert [one["epsilon"] for one in data_of("ledger", shop)["lifetimes_declared"]] == [2, 1.5, 40]
    for data in (data_of("plan", shop)["plans"][0], data_of("status", shop)):
        (raised,) = data["lifetime"]["raised"]
        assert (raised["before"]["epsilon"], raised["epsilon"]) == (1.5, 40)


def test_ledger_says_what_a_run_at_work_holds(shop: Path) -> None:
    bundle_of(shop)
    with closing(Workspace(load_spec(shop))) as workspace, workspace.at_work("mark", "a run"):
        total = Budget(0.5, 1e-9).total()
        workspace.ledger.hold("a run", total, "purpose", "mark")
        assert data_of("ledger", shop)["held"][0]["amount"] == total.amount
        for command in ("ledger", "plan", "status"):
            assert "of the lifetime budget (ρ=" in " ".join(call(command, shop).stdout.split())
            assert "A run begun at 20" in call(command, shop).stdout
    assert data_of("ledger", shop)["held"] == []
    assert "A run begun" not in call("ledger", shop).stdout


def test_another_neighbour_relation_is_refused_before_anything_is_paid(shop: Path) -> None:
    kept = "{columns: amount, references: customer, max_children: 4, optional: true}"
    owner = "[{columns: customer_id, references: customer, max_children: 4, owner: true}"
    two = SPEC.replace(owner, f"{owner}, {kept}").replace(
        "      amount: {type: integer, domain: {min: 0, max: 500}}", "      amount: {type: integer, nullable: true}"
    )
    given = pq.read_table(shop.parent / "purchase.parquet")
    pq.write_table(given.set_column(2, "amount", given["customer_id"]), shop.parent / "purchase.parquet")
    shop.write_text(two, encoding="utf-8")
    out = bundle_of(shop)
    entries = data_of("ledger", shop)["entries"]
    cascades = kept.replace("optional: true", "optional: true, on_unit_removed: cascade")
    shop.write_text(two.replace(kept, cascades), encoding="utf-8")
    for command in (["run", shop, "--epsilon", 1, "--out", out], ["ledger", shop], ["plan", shop], ["status", shop]):
        refused = call(*command)
        assert refused.exit_code == 1
        said = " ".join(refused.stderr.split())
        assert "purchase.amount (to customer): on_unit_removed: set null (amount) then, on_unit_removed: cas" in said
        assert "give the spec another database name" in said
    shop.write_text(two.replace("max_children: 4, owner", "max_children: 3, owner"), encoding="utf-8")
    assert data_of("ledger", shop)["entries"] == entries, "bounds are no part of it"
    shop.write_text(two.replace(kept, cascades).replace("database: shop", "database: shop apart"), encoding="utf-8")
    bundle_of(shop, "--out", shop.parent / "apart")


def test_a_new_cohort_has_an_account_of_its_own_and_the_others_are_named(shop: Path) -> None:
    declare(shop, "refresh: {epsilon: 1.2, times: 1}", "cohort: 2026")
    bundle_of(shop)
    spent = data_of("ledger", shop)["spent"]
    declare(shop, "refresh: {epsilon: 1.2, times: 1}", "cohort: 2027")
    assert data_of("ledger", shop)["spent"] == 0
    out = bundle_of(shop)
    found = data_of("ledger", shop)
    assert found["spent"] == pytest.approx(spent)  # also for rows that another cohort has paid for
    assert found["cohort"] == {"name": "2027", "others": {"2026": pytest.approx(spent)}}
    assert "For a person who is in several, the ε add up." in call("plan", shop).stdout
    guarantee = json.loads((out / "MANIFEST.json").read_text(encoding="utf-8"))["privacy"]["guarantee"]
    assert guarantee["cohort"]["name"] == "2027"
    assert "The units are cohort 2027 of the database. Declared: no unit of" in (out / "README.md").read_text("utf-8")
    assert guarantee["all_releases_so_far"]["epsilon_at_most"] == pytest.approx(spent)
    grown(shop, 31)
    assert call("run", shop, "--epsilon", 1, "--out", out).exit_code == 1


def test_what_is_bought_stays_usable_when_the_budget_is_lowered(shop: Path) -> None:
    bundle_of(shop)
    shop.write_text(SPEC.replace("lifetime: {epsilon: 2,", "lifetime: {epsilon: 0.6,"), encoding="utf-8")
    assert data_of("ledger", shop)["refreshes"]["left"] == 0
    assert data_of("run", shop, "--epsilon", 1, "--out", shop.parent / "bundle")["cost"]["paid"] == 0
    grown(shop, 30)
    assert call("run", shop, "--epsilon", 1, "--out", shop.parent / "bundle").exit_code == 1


@pytest.mark.parametrize("answer", [True, False])
def test_at_a_terminal_noise_is_bought_after_a_yes(answer: bool, monkeypatch: pytest.MonkeyPatch, shop: Path) -> None:
    from privbench_core.commands import run  # slow to import

    asked: list[bool] = []

    def noise_first(spec: Spec, *_: object, **__: object) -> None:
        asked.append(spec.fidelity.accept_noise)
        raise NoiseOnlyError("the rest would be noise")

    monkeypatch.setattr(run, "run_with_progress", noise_first)
    monkeypatch.setattr(run, "_at_a_terminal", lambda: True)
    monkeypatch.setattr(run.typer, "confirm", lambda *_, **__: answer)
    with pytest.raises(NoiseOnlyError):
        run.run_and_report(shop, 0.8, shop.parent / "out", undeclared_epsilon=True)
    assert asked == ([False, True] if answer else [False])
