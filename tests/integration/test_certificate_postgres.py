"""Certificates and explanations of plans, in a real PostgreSQL: what they say, and what they never touch."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from privbench_core.cli import app
from privbench_core.errors import PublishError
from privbench_core.explain import explain_plans
from privbench_core.explain.comparison import RunTimeSettings, compare_plans
from privbench_core.explain.decisions import Choice, Decision, Decisions, DecisionSettings, Way, decide
from privbench_core.explain.plan import both_loaded
from privbench_core.publishing import write_bundle
from privbench_core.spec.load import load_spec
from privbench_core.workload import Workload
from tests.helpers.postgres import new_database, rows

SPEC = """\
database: shop
source: .
privacy: {unit: customer, delta: 1.0e-9, epsilons: [1], lifetime: {epsilon: 2, delta: 1.0e-8}}
tables:
  customer:
    primary_key: id
    columns:
      id: integer
      age: {type: integer, domain: {min: 0, max: 99}}
  orders:
    primary_key: id
    foreign_keys: [{columns: customer, references: customer, max_children: 4, owner: true}]
    indexes: [{name: orders_customer_idx, columns: [customer]}]
    columns:
      id: integer
      customer: integer
"""
QUERIES = """\
SELECT count(*) FROM customer c JOIN orders o ON o.customer = c.id WHERE c.id = 77;
SELECT count(*) FROM nowhere;
SELECT count(*) FROM orders WHERE customer < 40;
SELECT /* choice: buyers */ count(*) FROM customer c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id);
SELECT /* choice: buyers */ count(*) FROM customer c WHERE 0 < (SELECT count(*) FROM orders o WHERE o.customer = c.id);
"""
OWN = """
CREATE TABLE orders (id integer PRIMARY KEY, customer integer);
CREATE INDEX orders_customer_idx ON orders (customer);
"""


def shop(customers):
    ids = range(customers)
    return {
        "customer": pa.table({"id": ids, "age": [i % 80 for i in ids]}),
        "orders": pa.table({"id": range(2 * customers), "customer": [i // 2 for i in range(2 * customers)]}),
    }


@pytest.fixture(scope="module")
def url(postgres):
    return new_database(postgres, "certified", OWN)


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    """A spec with its source, two bundles and a workload."""
    folder = tmp_path_factory.mktemp("certified")
    (folder / "spec.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "queries.sql").write_text(QUERIES, encoding="utf-8")
    for name, table in shop(1500).items():
        pq.write_table(table, folder / f"{name}.parquet")
    schema = load_spec(folder / "spec.yaml").schema
    write_bundle(folder / "bundle", schema, shop(1500), {}, {"own": "SELECT count(*) FROM orders WHERE customer < 40;"})
    write_bundle(folder / "small", schema, shop(20), {})
    return folder / "spec.yaml"


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def certify(spec, bundle, url, *more):
    folder = spec.parent
    where = ("--workload", folder / "queries.sql", "--url", url, "--out", folder / f"certificate of {bundle}")
    return call("certify", spec, folder / bundle, *where, *more)


def left_behind(url):
    found = rows(url, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'privbench%'")
    return found, len(rows(url, "SELECT 1 FROM pg_indexes WHERE tablename = 'orders' AND schemaname = 'public'"))


def test_a_certificate_of_an_equal_bundle(spec, url, tmp_path):
    limits = tmp_path / "limits.yaml"
    limits.write_text("answered: 0.8\ntime_ratio: 9\n", encoding="utf-8")
    result = certify(spec, "bundle", url, "--thresholds", limits)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Left out: query 2: nowhere: no such table" in result.stdout
    assert "Internal: compares with private data. Do not publish." in result.stdout
    out = spec.parent / "certificate of bundle"
    found = json.loads((out / "certificate.json").read_text(encoding="utf-8"))
    assert found["notice"].startswith("Internal")
    assert (found["figures"]["same_plan"], found["figures"]["rows_q_error"]) == (1, 1)
    assert (found["limits"]["answered"], found["missed"]) == (0.8, {})
    alternatives = {(choice["query"], choice["alternative"]) for choice in found["decisions"]["choices"]}
    assert {(1, "without customer_pkey"), (3, "without orders_customer_idx"), (4, "query 5 (buyers)")} <= alternatives
    versions = next(c for c in found["decisions"]["choices"] if c["alternative"] == "query 5 (buyers)")
    assert versions["clear"]
    assert versions["same_winner"]
    page = (out / "certificate.html").read_text(encoding="utf-8")
    assert page.index("Do not publish") < page.index("<h1>")
    assert out.stat().st_mode & 0o777 == 0o700
    assert left_behind(url) == ([], 2)


def test_a_certificate_that_misses_thresholds_names_the_flips(spec, url):
    result = certify(spec, "small", url, "--choices", 0, "--json")
    assert result.exit_code == 1
    assert result.stderr.startswith("privbench: thresholds missed: queries that ran: 80.0%; at least 100.0% are")
    found = json.loads(result.stdout)
    assert {"same_plan", "cost_ratio"} <= set(found["missed"])
    flips = {time["number"]: time["flips"] for time in found["plans"]["times"]}
    assert flips[3] == ["scan of orders uses no index instead of orders_customer_idx alone (index-only)"]
    (asked,) = (time for time in found["plans"]["times"] if time["number"] == 1)
    assert (found["plans"]["rebound"], found["plans"]["emptied"], asked["rows"]) == ([1], [], [2, 2])
    assert found["decisions"]["measured"] == 0
    assert found["figures"]["same_winner"] is None
    assert "SELECT" not in result.stderr


def test_a_published_query_runs_as_it_is_written_on_the_source_and_as_it_is_bound_on_the_bundle(spec, url):
    """Of the workload, the bundle has the third query alone, with another literal."""
    folder = spec.parent
    published = folder / "published.yaml"
    published.write_text(f"{SPEC}workload: {{file: queries.sql, public: true}}\n", encoding="utf-8")
    noted = {"workload": {"queries": {"left_out": [{"query": number, "reason": ""} for number in (1, 2, 4, 5)]}}}
    bound = {"queries": "SELECT count(*) FROM orders WHERE customer < 20;"}
    write_bundle(folder / "bound", load_spec(published).schema, shop(1500), noted, bound)
    result = call("certify", published, folder / "bound", "--url", url, "--out", folder / "c", "--choices", 2, "--json")
    found = json.loads(result.stdout)
    (query,) = found["plans"]["times"]
    assert (query["sql"], query["rows"]) == ("SELECT count(*) FROM orders WHERE customer < 40", [80, 40])
    assert (found["decisions"]["measured"], found["decisions"]["failed"]) == (1, [])
    (folder / "queries.sql").write_text(f"{QUERIES}SELECT 1;", encoding="utf-8")  # then nobody knows which is which
    result = call("certify", published, folder / "bound", "--url", url, "--out", folder / "c", "--choices", 0, "--json")
    (query,) = json.loads(result.stdout)["plans"]["times"]
    assert query["rows"] == [40, 40]
    (folder / "queries.sql").write_text(QUERIES, encoding="utf-8")


def test_a_certificate_is_written_into_no_bundle(spec, url):
    result = certify(spec, "bundle", url, "--out", spec.parent / "bundle" / "certificate")
    assert result.exit_code == 1
    assert "internal" in result.stderr
    assert not (spec.parent / "bundle" / "certificate").exists()


def test_a_recipient_explains_a_bundle_alone_and_against_another(spec, url):
    folder = spec.parent
    result = call("explain", folder / "bundle", "--url", url, "--json")
    assert result.exit_code == 0, result.stderr
    (query,) = json.loads(result.stdout)["queries"]
    assert query["actual_rows"] == 80
    assert query["scans"] == [["orders", "orders", "Index Only Scan", ["orders_customer_idx"]]]
    result = call("explain", folder / "bundle", "--url", url, "--against", folder / "small", "--out", folder / "plans")
    assert result.exit_code == 0, result.stderr
    assert "Against small: 0% of the queries have the same plan" in result.stdout
    page = (folder / "plans" / "plans.html").read_text(encoding="utf-8")
    assert "scan of orders uses orders_customer_idx alone (index-only) instead of no index" in page
    assert "Do not publish" not in page
    with pytest.raises(PublishError, match="small: has no queries of its own"):
        explain_plans(folder / "small", url=url)
    assert left_behind(url) == ([], 2)


def test_choices_are_sampled_by_seed_within_their_time_and_fail_one_by_one(spec, url):
    schema = load_spec(spec).schema
    workload = Workload.of(QUERIES.split(";\n")[:3])
    with both_loaded(schema, shop(1500), spec.parent / "bundle", url) as databases:
        plans = compare_plans(schema, databases, workload, RunTimeSettings(1, 0))

        def chosen(**settings):
            found = decide(schema, [databases, databases], plans.compared, DecisionSettings(repetitions=2, **settings))
            return [(each.choice.number, each.choice.alternative) for each in found.made], found.found

        once, again, other = chosen(limit=3), chosen(limit=3), chosen(limit=3, seed=1)
        assert once == again != other
        assert len(once[0]) == 3 < once[1]
        assert chosen(seconds=0.0)[0] == []
        every = chosen()[0]
        assert (1, f"PostgreSQL {plans.server}") in every
        count = databases[0].execute("SELECT count(*) FROM pg_indexes WHERE schemaname = current_schema()").fetchone()
        assert count == (3,), "what was left out is still there"


def test_a_decision_is_clear_or_not_and_has_a_winner():
    choice = Choice(1, "", (Way(("", "")), Way(("", ""))))
    slow, fast, slower = (10.0, 11.0), (1.0, 2.0), (10.2, 11.2)
    assert Decision(choice, (slow, fast), (slower, fast)).same_winner
    assert not Decision(choice, (slow, fast), (fast, slow)).same_winner
    assert not Decision(choice, (slow, slower), (fast, slow)).clear
    turned, tied = (Decision(choice, (slow, fast), b) for b in ((fast, slow), ((1.0, 5.0), (0.9, 4.0))))
    straight = Decision(choice, (slow, fast), (slow, fast))
    found = Decisions((turned, tied, straight), 3, (), DecisionSettings())
    assert (found.reversed, found.same_winner) == ((turned,), pytest.approx(2 / 3))
    hopeless = Decision(choice, (slow, (math.inf,)), (slow, (math.inf,)))
    assert hopeless.clear
    assert hopeless.to_dict()["source"] == (10.5, None)
