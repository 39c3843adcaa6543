"""The spec file: what it means, and that every mistake in it is found and explained."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import yaml

from privbench_core.errors import SpecError
from privbench_core.schema.columns import Column, ColumnType, Learn, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import DecayingRefreshes, EqualRefreshes
from tests.helpers.specs import changed as swapped
from tests.helpers.specs import explained, load, problems

SHOP = """
database: shop
source: data
privacy: {unit: customer, delta: 1e-9, epsilons: [0.8, 3.2], lifetime: {epsilon: 20}}
tables:
  customer:
    primary_key: id
    foreign_keys:
      - {columns: region, references: region}
    columns:
      id: integer
      region: text
      age: {type: integer, domain: {min: 0, max: 120, cells: 60}, nullable: true}
      answer: {type: category, domain: {values: [NO, yes, 02134]}}
      since: {type: date, domain: {min: 2000-01-01, max: 2030-12-31}}
      member: boolean
      note: {type: text, max_length: 80}
  order:
    primary_key: [customer, line]
    foreign_keys:
      - {columns: customer, references: customer, max_children: 10, on_orphan: drop}
    unique: [[price, seen]]
    columns:
      customer: integer
      line: integer
      price: {type: decimal, precision: 8, scale: 2, domain: {min: 0, max: 99.5}}
      seen: {type: timestamp, domain: {min: "2020-01-01", max: "2021-01-01 12:00"}}
      weight: {type: float, domain: learn}
  region:
    public: true
    primary_key: code
    columns:
      code: {type: text}
      label: text
"""


LINKED = """
database: linked
source: data
privacy: {unit: customer, delta: 1e-9, epsilons: [1], lifetime: {epsilon: 5}, public: [country]}
enums: {mood: [ok, bad]}
tables:
  country:
    primary_key: code
    columns:
      code: text
  customer:
    primary_key: id
    foreign_keys:
      - {columns: country, references: country}
    columns:
      id: integer
      mood: {type: category, sql_type: mood}
      country: text
  order:
    primary_key: id
    row_order: at
    foreign_keys:
      - {columns: customer_id, references: customer, max_children: 20}
    checks:
      - {name: in_order, expression: at < paid}
    generated:
      twice: {sql_type: integer, expression: n * 2}
    columns:
      id: {type: integer, identity: true}
      customer_id: integer
      at: {type: timestamp, domain: learn}
      paid: {type: timestamp, relative_to: at, domain: learn}
      n: {type: integer, domain: {min: 0, max: 9}}
  item:
    primary_key: [order_id, line]
    foreign_keys:
      - {columns: order_id, references: order, max_children: 20}
    columns:
      order_id: integer
      line: {type: integer, domain: learn}
      placed: {type: timestamp, relative_to: order.at, domain: learn}
"""


changed = partial(swapped, SHOP)


def test_a_spec_is_read_as_it_is_meant(tmp_path: Path) -> None:
    spec = load(tmp_path, SHOP)
    assert spec.source == str(tmp_path / "data")
    assert spec.state == tmp_path / ".privbench"
    assert (spec.epsilons, spec.delta, spec.lifetime_epsilon, spec.lifetime_delta) == ((0.8, 3.2), 1e-9, 20.0, 1e-9)
    assert (spec.synthesizer, spec.options, spec.schedule) == ("privbench", {}, None)
    assert spec.orphans == {"customer.region": "refuse", "order.customer": "drop"}
    customer, order = spec.schema.table("customer"), spec.schema.table("order")
    assert customer.column("age") == Column("age", ColumnType.INTEGER, Range(0, 120, 60), nullable=True)
    # YAML 1.1 would read False, True and 1116 here.
    assert customer.column("answer").domain == Values(("NO", "yes", "02134"))
    assert customer.column("since").domain == Range("2000-01-01", "2030-12-31")
    assert customer.column("note").max_length == 80
    assert customer.owner_key is None
    assert order.owner_key == ForeignKey("order", ("customer",), "customer", ("id",), 10, owner=True)
    assert order.column("price") == Column("price", ColumnType.DECIMAL, Range(0, "99.5"), precision=8, scale=2)
    assert order.column("seen").domain == Range("2020-01-01T00:00:00", "2021-01-01T12:00:00")
    assert order.column("weight").domain == Learn()
    assert order.primary_key == ("customer", "line")
    assert order.unique == (("price", "seen"),)
    assert [table.name for table in spec.schema.sampling_order] == ["region", "customer", "order"]


def test_refresh_policy_cohort_and_owners_are_read_and_written(tmp_path: Path) -> None:
    terms = "{epsilon: 20}, refresh: {epsilon: 4, times: 5}, cohort: 2027"
    spec = load(tmp_path, changed("{epsilon: 20}", terms).replace("source: data", "source: data\nowners: team:stats"))
    assert (spec.refresh, spec.cohort, spec.owners) == (EqualRefreshes(4.0, 5), "2027", ("team:stats",))
    spec = load(tmp_path, changed("{epsilon: 20}", "{epsilon: 20}, refresh: {decay: 0.5}"))
    assert (spec.refresh, spec.cohort, spec.owners) == (DecayingRefreshes(0.5), "", ())


def test_dumped_and_loaded_is_the_same(tmp_path: Path) -> None:
    more = 'source: data\nschedule: "0 3 * * 1"\nsynthesizer: {name: other, options: {beta: 5}}'
    text = changed("source: data", more)
    spec = load(tmp_path, text)
    assert (spec.synthesizer, spec.options, spec.schedule) == ("other", {"beta": 5}, "0 3 * * 1")
    assert yaml.safe_load(dump_spec(spec))["source"] == "data"  # stays relative: the project can be moved


def test_urls_and_variables_stay_as_written_and_out_of_the_representation(tmp_path: Path) -> None:
    for source in ("postgresql://u:hunter2@h/db", "${DATABASE_URL}", "postgresql://u:${SECRET}@h/db"):
        spec = load(tmp_path, changed("source: data", f"source: {source}"))
        assert spec.source == source
        assert source not in repr(spec)


def test_the_order_of_rows_is_read_and_written(tmp_path: Path) -> None:
    spec = load(
        tmp_path, SHOP.replace("primary_key: [customer, line]", "primary_key: [customer, line]\n    row_order: seen")
    )
    assert spec.schema.table("order").row_order == "seen"
    public = load(tmp_path, SHOP.replace("primary_key: code", "primary_key: code\n    row_order: code"))
    assert public.schema.table("region").row_order is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sene", "order.sene: no such column; did you mean 'seen'?"),
        ("line", "order: row_order: line is a key column, and keys are numbered in that order; name another column"),
        ("2", "order.2: no such column"),
        ("[seen]", "order: row_order is ['seen']; name the column"),
    ],
)
def test_an_order_of_rows_that_cannot_be_is_explained(tmp_path: Path, name: str, expected: str) -> None:
    explained(
        tmp_path,
        changed("primary_key: [customer, line]", f"primary_key: [customer, line]\n    row_order: {name}"),
        expected,
    )


def test_a_list_of_values_is_no_order_of_rows(tmp_path: Path) -> None:
    text = changed("  customer:\n", "  customer:\n    row_order: answer\n")
    explained(tmp_path, text, "customer: row_order: answer is of type category, which has no order; name a date")


def test_an_optional_key_makes_its_columns_nullable(tmp_path: Path) -> None:
    spec = load(tmp_path, changed("references: region}", "references: region, optional: true}"))
    assert spec.schema.table("customer").column("region").nullable
    assert spec.schema.table("customer").foreign_keys[0].optional


def test_composite_keys_follow_the_order_of_the_parents_key(tmp_path: Path) -> None:
    extra = """
  part:
    primary_key: id
    foreign_keys:
      - {columns: [l, c], references: {table: order, columns: [line, customer]}, max_children: 3}
    columns: {id: integer, l: integer, c: integer}
"""
    key = load(tmp_path, SHOP + extra).schema.table("part").foreign_keys[0]
    assert (key.columns, key.parent_columns, key.owner) == (("c", "l"), ("customer", "line"), True)


def test_seven_mistakes_are_seven_problems(tmp_path: Path) -> None:
    text = SHOP
    for old, new in {
        "source: data": "sorce: data",
        "delta: 1e-9": "delta: 1.5",
        "age: {type: integer": "age: {type: integr",
        "min: 2000-01-01": "min: 2031-01-01",
        "max_children: 10": "max_children: 0",
        "precision: 8, ": "",
        "code: {type: text}": "code: {type: text, nullabel: true}",
    }.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    found = problems(tmp_path, text)
    starts = [
        "spec: unknown key 'sorce'; did you mean 'source'?",
        "privacy: delta is 1.5; ",
        "customer.age: type is 'integr'; did you mean 'integer'?",
        "customer.since: min '2031-01-01' is above max '2030-12-31'; ",
        "order.customer: max_children is 0; ",
        "order.price: a decimal without precision and scale; ",
        "region.code: unknown key 'nullabel'; did you mean 'nullable'?",
    ]
    assert len(found) == 7, "\n".join(found)
    for start in starts:
        assert any(line.startswith(start) for line in found), (start, found)
    assert str(SpecError(found)) == "\n".join(found)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("unit: customer", "unit: custmer", "privacy: unit: there is no table 'custmer'; did you mean 'customer'?"),
        ("unit: customer, ", "", "privacy: unit is missing"),
        ("unit: customer", "unit: CHOOSE", "privacy: unit is not decided yet"),
        ("unit: customer", "unit: region", "region: the privacy unit is a public table"),
        ("unit: customer", "unit: order", "order.customer: the privacy unit depends on the private table customer"),
        ("[0.8, 3.2]", "[]", "privacy: epsilons is []"),
        ("[0.8, 3.2]", "[0.8, -1]", "privacy: epsilons is [0.8, -1]"),
        ("[0.8, 3.2]", "[0.8, 0.8]", "privacy: epsilons is [0.8, 0.8]; 0.8 stands twice"),
        ("[0.8, 3.2]", "[.inf]", "privacy: epsilons is [inf]"),
        (", lifetime: {epsilon: 20}", "", "privacy: lifetime is missing; declare the largest total"),
        ("{epsilon: 20}", "{epsilon: 0.5}", "privacy.lifetime: epsilon is 0.5; it cannot pay"),
        ("{epsilon: 20}", "{epsilon: 20, delta: 1e-12}", "privacy.lifetime: delta is 1e-12; it cannot be below"),
        ("delta: 1e-9", "delta: -1", "privacy: delta is -1"),
        ("source: data", 'source: data\nschedule: "daily"', "spec: schedule is 'daily'"),
        ("source: data", "source: data\nowners: [somebody]", "spec: owners is ['somebody']; list e-mail addresses"),
        ("{epsilon: 20}", "{epsilon: 20}, cohort: a/b", "privacy: cohort is 'a/b'; name it with up to 40 letters"),
        ("{epsilon: 20}", "{epsilon: 20}, refresh: 4", "privacy: refresh is 4; write {epsilon: 0.5, times: 6} for six"),
        ("{epsilon: 20}", "{epsilon: 20}, refresh: {epsilon: 4}", "privacy: refresh is {'epsilon': 4}; write"),
        ("{epsilon: 20}", "{epsilon: 20}, refresh: {epsilon: 4, times: 0}", "privacy.refresh: times is 0; write how"),
        ("{epsilon: 20}", "{epsilon: 20}, refresh: {epsilon: x, times: 1}", "privacy.refresh: epsilon is 'x'; write"),
        (
            "{epsilon: 20}",
            "{epsilon: 20}, refresh: {epsilon: 0.5, times: 1}",
            "privacy: refresh is {'epsilon': 0.5, 'times': 1}; one",
        ),
        ("{epsilon: 20}", "{epsilon: 20}, refresh: {decay: 1}", "privacy.refresh: decay is 1; write a number above 0"),
        ("source: data", 'source: data\nobserve: "hourly"', "spec: observe is 'hourly'"),
        ("source: data", "source: data\nsynthesizer: {options: {}}", "synthesizer: name is missing"),
        ("database: shop", 'database: "a\\tb"', "'a\\tb': this name holds a character that cannot be printed"),
        ("  region:\n", "  Customer:\n", "customer, Customer: tables differ only by case"),
        ("note: {", "AGE: boolean\n      note: {", "customer: the columns age, AGE differ only by case"),
        ("max: 120, cells: 60", "max: 120, cells: 0", "customer.age: cells is 0"),
        ("max: 120, cells: 60", "max: 120, step: 0", "customer.age: step is 0; write an integer of 64 bits, above zer"),
        ("max: 120, cells: 60", "max: 120, step: P1D", "customer.age: step is 'P1D'"),
        ("max: 120, cells: 60", "cells: 60", "customer.age: max is missing"),
        ("max: 120, cells: 60", "max: 1.5", "customer.age: max is 1.5; write an integer"),
        ("max: 120, cells: 60", "max: -5", "customer.age: min 0 is above max -5"),
        ("[NO, yes, 02134]", "[]", "customer.answer: values is []"),
        ("[NO, yes, 02134]", "[a, b, a]", "customer.answer: values holds 'a' twice"),
        ("[NO, yes, 02134]", "[a, null]", "customer.answer: values holds None; each must be text"),
        ("[NO, yes, 02134]", "[true]", "customer.answer: values holds True; each must be text"),
        (", domain: {values: [NO, yes, 02134]}", "", "customer.answer: a column of type category without a domain"),
        ("member: boolean", "member: {type: boolean, domain: learn}", "customer.member: a domain on a column of type"),
        ("member: boolean", "member: {type: boolean, scale: 2}", "customer.member: scale on a column of type boolean"),
        ("member: boolean", "member: {type: float, domain: {values: [1]}}", "customer.member: a list of values for"),
        ("member: boolean", "member: integer", "customer.member: a column of type integer without a domain; declare"),
        ("      id: integer", "      id: {type: integer, domain: learn}", "customer.id: a domain on a key column"),
        ("      id: integer", "      id: {type: integer, nullable: true}", "customer.id: a primary key that may be"),
        ("      id: integer", "      id: {type: integer, nullable: yes}", "customer.id: nullable is 'yes'; write true"),
        ("      id: integer", "      id: float", "customer.id: a key of type float"),
        ("      id: integer", "      id: text", "order.customer: type integer, but customer.id is text"),
        ("primary_key: id\n", "primary_key: idd\n", "customer.idd: no such column; did you mean 'id'?"),
        ("primary_key: id\n", "primary_key: [id, id]\n", "customer: primary_key is ['id', 'id']"),
        ("scale: 2, ", "scale: 9, ", "order.price: scale is 9"),
        ("columns: customer,", "columns: custmer,", "order.custmer: no such column; did you mean 'customer'?"),
        ("columns: customer,", "columns: [customer, line],", "order.(customer,line): 2 column(s) refer to 1"),
        ("references: customer,", "references: customr,", "order.customer: references 'customr', which is no"),
        ("references: customer,", "references: {table: customer, columns: age},", "order.customer: refers to customer"),
        ("references: customer,", "", "order.customer: references is missing; name the parent table"),
        ("references: customer,", "references: region,", "order: a private table with no path to the privacy unit"),
        ("references: customer,", "references: region, owner: true,", "order.customer: owner: true on a key to a publ"),
        (", max_children: 10", "", "order.customer: max_children is missing; declare the most order rows one"),
        ("      - {columns: customer,", "      - customer\n      - {columns: customer,", "order: a foreign key is not"),
        ("on_orphan: drop}", "on_orphan: drop}\n      - {columns: customer, references: region}", "order.customer: tw"),
        ("columns: customer, ref", "optional: true, columns: line, ref", "order.line: optional, but none of its colum"),
        ("customer: integer", "customer: {type: integer, nullable: true}", "order.customer: a nullable column in a"),
        ("code: {type: text}", "code: {}", "region.code: type is missing"),
        ("    unique: [[price, seen]]", "    unique: price", "order: unique is 'price'; write a list of lists"),
        ("    unique: [[price, seen]]", "    unique: [price, seen]", "order: unique is ['price', 'seen']; write a lis"),
        ("    unique: [[price, seen]]", "    unique: [[price, price]]", "order: unique is [['price', 'price']]; write"),
        ("    unique: [[price, seen]]", "    colums: {}", "order: unknown key 'colums'; did you mean 'columns'?"),
        ("  region:\n", '  "a\\tb":\n', "'a\\tb': this name holds a character that cannot be printed; rename it"),
        ("  region:\n", "  empty:\n  region:\n", "empty: the table has no content; give it a primary_key and columns"),
        ("  region:\n", "  bare: {primary_key: id}\n  region:\n", "bare: columns is missing; list them as name: type"),
        ("on_orphan: drop", "on_orphan: ignore", "order.customer: on_orphan is 'ignore'"),
        ("on_orphan: drop", "owner: true, optional: true", "order.customer: optional, but none of its columns can be"),
        ("references: region}", "references: region, owner: true}", "customer.region: owner: true in the privacy unit"),
        ("    public: true\n", "", "region: a private table with no path to the privacy unit; add a foreign key"),
        ("    unique: [[price, seen]]", "    unique: [[price, sen]]", "order.sen: no such column; did you mean 'seen'"),
        ("  region:\n    public: true", "  region:\n    public: maybe", "region: public is 'maybe'"),
        ("  order:\n", "  order:\n    public: true\n", "order.customer: a public table refers to the private table"),
    ],
)
def test_each_mistake_is_explained(tmp_path: Path, old: str, new: str, expected: str) -> None:
    explained(tmp_path, changed(old, new), expected)


@pytest.mark.parametrize(
    "old_new",
    [
        ("      id: integer", "      id: integr"),
        ("columns: customer,", "columns: custmer,"),
        ("max_children: 10", "max_children: 0"),
        ("unit: customer", "unit: CHOOSE"),
        ("unit: customer", "unti: customer"),
        ("public: [country]", "public: [contry]"),
        ("public: [country]", "publc: [country]"),
        ("mood: [ok, bad]", "mood: [ok, ok]"),
        ("      code: text", "      coed: text"),
        ("      id: integer\n      mood", "      idd: integer\n      mood"),
        ("  customer:\n    primary_key: id", "  customer:\n    primry_key: id"),
        ("at: {type: timestamp", "at: {type: timestmp"),
        ("at: {type: timestamp", "at_: {type: timestamp"),
        ("relative_to: at, domain", "relative_to: at, doman"),
        ("relative_to: at, domain", "relativ_to: at, domain"),
        ("    row_order: at", "    row_order: at\n    comments: [1]"),
        ("columns: customer_id, ref", "colums: customer_id, ref"),
        ("references: customer, max", "referencs: customer, max"),
        ("customer_id: integer", "customer_no: integer"),
        ("columns: order_id, ref", "columns: orderid, ref"),
        ("    columns:\n      order_id", "    colums:\n      order_id"),
        ("n: {type: integer, ", "n: {type: intger, "),
    ],
)
def test_one_mistake_is_one_problem(tmp_path: Path, old_new: tuple[str, str]) -> None:
    """A type that nobody knows was five problems: of its order, its difference, its check, that of its children."""
    old, new = old_new
    text = LINKED if old in LINKED else SHOP
    found = problems(tmp_path, swapped(text, old, new))
    assert len(found) == 1, "\n".join(found)


def test_learned_categories_need_a_delta(tmp_path: Path) -> None:
    learned = SHOP.replace("domain: {values: [NO, yes, 02134]}", "domain: learn")
    assert load(tmp_path, learned).delta == 1e-9
    found = problems(tmp_path, learned.replace("delta: 1e-9", "delta: 0"))
    assert found == (
        "customer.answer: a list of values cannot be learned with delta 0; list the values, or declare delta above 0",
    )


def test_several_paths_need_a_marked_owner(tmp_path: Path) -> None:
    two = """
  visit:
    primary_key: id
    foreign_keys:
      - {columns: host, references: customer, max_children: 5}
      - {columns: guest, references: customer, max_children: 5}
    columns: {id: integer, host: integer, guest: integer}
"""
    (found,) = problems(tmp_path, SHOP + two)
    assert found.startswith(
        "visit: several paths lead to the privacy unit; mark one of visit.host, visit.guest with owner: true (the one"
    )
    marked = (SHOP + two).replace("{columns: host,", "{owner: true, columns: host,")
    assert load(tmp_path, marked).schema.ownership_path("visit")[0].columns == ("host",)
    both = marked.replace("{columns: guest,", "{owner: true, columns: guest,")
    assert problems(tmp_path, both) == (
        "visit: several keys are marked owner: true (visit.host, visit.guest); keep it on one",
    )


def test_yaml_mistakes_give_a_line(tmp_path: Path) -> None:
    assert problems(tmp_path, "database: [\n  a: b\n")[0].startswith("line 3, column 1: not valid YAML")
    assert problems(tmp_path, "")[0].startswith("spec: holds no keys")
    twice = changed("      member: boolean", "      member: boolean\n      age: integer")
    assert problems(tmp_path, twice)[0] == "line 17: the key 'age' occurs twice in one mapping; remove one"
    (tmp_path / "spec.yaml").write_bytes(b"database: \xff\xfe")
    with pytest.raises(SpecError, match=r"spec\.yaml: not UTF-8 text"):
        load_spec(tmp_path / "spec.yaml")
    with pytest.raises(SpecError, match=r"none\.yaml: cannot be read"):
        load_spec(tmp_path / "none.yaml")


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    assert "not valid YAML" in problems(tmp_path, "database: !!python/object/apply:os.getcwd []")[0]


def test_the_example_of_the_documentation_is_a_spec(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "spec_reference.md").read_text(encoding="utf-8")
    example = text.partition("```yaml\n")[2].partition("```")[0]
    assert load(tmp_path, example).schema.deferred_keys == {"customer.referred_by"}


@pytest.mark.parametrize("url", ["postgresql://me:${SECRET}@host/ledger", "${LEDGER}", "postgresql+psycopg:///l"])
def test_the_ledger_may_be_in_postgresql(tmp_path: Path, url: str) -> None:
    spec = load(tmp_path, changed("privacy: {", f"privacy: {{ledger: '{url}', "))
    assert spec.ledger == url
    assert url not in repr(spec)


@pytest.mark.parametrize("url", ["mysql://me:hunter2@host/ledger", "hunter2.sqlite", "postgresql://a hunter2"])
def test_a_ledger_elsewhere_is_refused_without_repeating_it(tmp_path: Path, url: str) -> None:
    (problem,) = problems(tmp_path, changed("privacy: {", f"privacy: {{ledger: '{url}', "))
    assert problem.startswith("privacy.ledger: not a PostgreSQL URL")
    assert "hunter2" not in problem
