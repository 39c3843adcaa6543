"""What of a spec ends in the DDL: SQL types, enums, defaults, checks, indexes; and domains of the newer types."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from privbench_core.backends.expressions import readable
from privbench_core.schema.checks import is_contained, parse_check, unenforced_checks
from privbench_core.schema.columns import Column, ColumnType, EnumType, Learn, Pattern, Range, Values
from privbench_core.schema.constraints import Check, Dependency, Index
from privbench_core.schema.types.durations import duration_text, parse_duration
from privbench_core.spec.load import dump_spec
from tests.helpers.specs import changed as swapped
from tests.helpers.specs import explained, load, problems

SHOP = """
database: shop
source: data
privacy: {unit: customer, delta: 1e-9, epsilons: [1], lifetime: {epsilon: 2}}
enums: {mood: [calm, "it's", ""], Level: [1, 2]}
tables:
  customer:
    comment: Those who pay
    primary_key: id
    checks:
      - {name: in order, expression: low <= high}
      - {name: strange, expression: low IS NOT OF TYPE LIKE high}
    indexes: [{name: by mood, columns: [mood, low]}, {name: by low, columns: low}]
    dependencies: [{determinant: city, dependent: [state, low]}]
    columns:
      id: {type: integer, identity: true, sql_type: INT}
      mail: {type: text, domain: {faker: email}, sql_type: varchar(40), comment: "it's private"}
      plate: {type: text, domain: {pattern: "[A-Z]{2}[0-9]{4}"}, max_length: 6}
      mood: {type: category, sql_type: mood, default: "'calm'"}
      level: {type: category, sql_type: Level, domain: {values: [2]}}
      city: {type: category, domain: {values: [x, y]}, sql_type: char(3)}
      state: {type: category, domain: learn}
      low: {type: integer, domain: {min: 0, max: 9}, sql_type: smallint}
      high: {type: integer, domain: {values: [1, 2]}, sql_type: "numeric(4)"}
      seen: {type: timestamptz, domain: {min: "2020-01-01T01:00:00+01:00", max: "2021-01-01 00:00Z"}}
      stay: {type: interval, domain: {min: PT0S, max: 30 days}}
      token: {type: uuid, nullable: true}
      photo: {type: bytes, max_length: 1000}
      doc: {type: json, sql_type: jsonb}
      from: {type: text, sql_type: inet, domain: {faker: ipv4}}
"""


changed = partial(swapped, SHOP)


def test_a_spec_with_everything_is_read_and_dumped(tmp_path: Path) -> None:
    spec = load(tmp_path, SHOP)
    customer = spec.schema.table("customer")
    assert spec.schema.enums == (EnumType("mood", ("calm", "it's", "")), EnumType("Level", ("1", "2")))
    assert customer.checks[0] == Check("in order", "low <= high")
    assert customer.indexes == (Index("by mood", ("mood", "low")), Index("by low", ("low",)))
    assert customer.dependencies == (Dependency(("city",), ("state", "low")),)
    assert customer.comment == "Those who pay"
    assert customer.column("id") == Column("id", ColumnType.INTEGER, sql_type="INT", identity=True)
    mail = customer.column("mail")
    assert (mail.domain, mail.max_length) == (Pattern(provider="email"), 40)  # the type has no room for more
    assert customer.column("plate").domain == Pattern(regex="[A-Z]{2}[0-9]{4}")
    assert customer.column("mood").domain == Values(("calm", "it's", ""))
    assert customer.column("level").domain == Values(("2",))
    assert customer.column("seen").domain == Range("2020-01-01T00:00:00Z", "2021-01-01T00:00:00Z")
    assert customer.column("stay").domain == Range("PT0S", "P30D")
    assert "domain" not in dump_spec(spec).split("mood: {type")[1].split("}")[0]


def test_indexes_are_ours_to_choose_unless_listed(tmp_path: Path) -> None:
    line = "    indexes: [{name: by mood, columns: [mood, low]}, {name: by low, columns: low}]\n"
    assert load(tmp_path, changed(line, "")).schema.table("customer").indexes is None
    none = load(tmp_path, changed(line, "    indexes: []\n"))
    assert none.schema.table("customer").indexes == ()


def test_checks_that_are_not_understood_are_kept_and_told(tmp_path: Path) -> None:
    schema = load(tmp_path, SHOP).schema
    assert unenforced_checks(schema) == ("customer.strange",)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("low <= high", "low <= hihg", "customer: the check in order refers to hihg, which is not a column; did"),
        ("low <= high", "low <= Mail2", "customer: the check in order refers to mail2, which is no column; did you"),
        ("low <= high", "low) OR (high", "customer: the check in order is not one expression"),
        ("low <= high", "low; DROP TABLE x", "customer: the check in order is not one expression"),
        ("name: strange", "name: in order", "customer: two checks are called in order; rename one"),
        (", expression: low <= high", "", "customer: expression is missing; write a condition in SQL"),
        ("name: by low", "name: by mood", "by mood: two indexes have this name, but PostgreSQL allows"),
        ("name: by low", "name: customer", "customer: an index and a table have this name, but PostgreSQL"),
        ("columns: low}", "columns: lwo}", "customer.lwo: no such column; did you mean 'low'?"),
        ("columns: low}", "colums: low}", "customer: unknown key 'colums'; did you mean 'columns'?"),
        ("determinant: city", "determinant: citi", "customer.citi: no such column; did you mean 'city'?"),
        ("[state, low]", "[state, city]", "customer: the dependency of state, city on city has a column on both sides"),
        ("[state, low]", "id", "customer: the dependency of id on city decides the key column id; remove it"),
        ("sql_type: INT}", "sql_type: integr}", "customer.id: sql_type is 'integr'; did you mean 'integer'?"),
        ("sql_type: INT}", 'sql_type: "int); DROP TABLE x; --"}', "customer.id: sql_type is 'int); DROP TABLE x; -"),
        ("sql_type: INT}", "sql_type: text}", "customer.id: type integer, but sql_type text holds category or json"),
        ("sql_type: INT}", 'default: "1"}', "customer.id: both a default and identity: true; remove one"),
        ("identity: true, sql", 'default: "1, x int", sql', None),
        ("identity: true, sql", 'default: "1) , (2", sql', "customer.id: the default is not one expression"),
        ("{type: uuid, nullable", "{type: uuid, identity: true, nullable", "customer.token: identity on a column of"),
        ("{type: uuid,", "{type: uuid, domain: learn,", "customer.token: a domain on a column of type uuid; remove it"),
        ("{type: uuid,", "{type: uuid, max_length: 3,", "customer.token: max_length on a column of type uuid"),
        ("faker: email", "faker: 'os.system'", "customer.mail: faker is 'os.system'; name a provider of the Faker"),
        ("{faker: email}", "learn", "customer.mail: domain is 'learn'; write {pattern: a regular expression}"),
        ("{faker: email}", "{faker: a, pattern: b}", "customer.mail: domain is {'faker': 'a', 'pattern': 'b'}; write"),
        ('"[A-Z]{2}[0-9]{4}"', '"[A-Z"', "customer.plate: pattern is '[A-Z'; write a regular expression"),
        ("varchar(40)", "varchar(40), max_length: 41", "customer.mail: max_length is 41, but sql_type character varyi"),
        ("values: [x, y]", "values: [x, yyyy]", "customer.city: the domain holds 'yyyy', which does not fit in sql_ty"),
        ("max: 9}", "max: 40000}", "customer.low: the domain holds 40000, which does not fit in sql_type smallint"),
        ("values: [2]", "values: [3]", "customer.level: values holds '3', which the enum Level does not have; known: "),
        ("domain: {values: [2]}", "domain: learn", "customer.level: domain: learn, but the enum Level lists the value"),
        ("{type: category, sql_type: mood", "{type: text, sql_type: mood", "customer.mood: type text, but mood is an "),
        ("{mood: [", "{text: [a], mood: [", "enums: text is also the name of a type of PostgreSQL; rename it"),
        ("Level: [1, 2]", "Level: [1, 1]", "enums: Level is [1, 1]; list its values, each once and in their order"),
        ("Level: [1, 2]", "Level: []", "enums: Level is []; list its values"),
        (", domain: {faker: ipv4}", "", "customer.from: generated text is no valid inet; declare domain: {faker: ipv4"),
        ('"2020-01-01T01:00:00+01:00"', '"2020-01-01"', "customer.seen: min is '2020-01-01'; write a time with its of"),
        ("30 days", "soon", "customer.stay: max is 'soon'; write a span of time like P1DT2H, or 1 day 02:00:00"),
        ("max: 30 days", "max: -1 day", "customer.stay: min 'PT0S' is above max '-P1D'"),
        ("      id: {type", "      id: {type: json}\n      ids: {type", "customer.id: a key of type json; keys are"),
        ("      id: {type", "      id: {type: interval}\n      ids: {type", "customer.id: a key of type interval; key"),
        ("primary_key: id", "primary_key: mood", "customer.mood: a key of the enum mood; keys are generated"),
    ],
)  # fmt: skip
def test_each_mistake_is_explained(tmp_path: Path, old: str, new: str, expected: str | None) -> None:
    if expected is None:  # inside of its brackets, so PostgreSQL will say what it thinks of it
        assert load(tmp_path, changed(old, new))
        return
    explained(tmp_path, changed(old, new), expected)


def test_addresses_of_a_public_table_are_those_of_the_source(tmp_path: Path) -> None:
    public = "  hosts:\n    primary_key: id\n    columns: {id: integer, ip: {type: text, sql_type: inet}}\n"
    text = changed("{unit: customer,", "{unit: customer, public: [hosts],").rstrip() + f"\n{public}"
    assert load(tmp_path, text).schema.table("hosts").public


def test_names_of_every_kind_are_welcome(tmp_path: Path) -> None:
    longest = "n" * 63
    for name in ("select", "Order", "größe", "a b", "a/b", "..", "*", '"', "'", longest):
        text = changed("  customer:\n", f"  {name!r}:\n" if name != "'" else '  "\'":\n')
        text = text.replace("unit: customer", f"unit: {name!r}" if name != "'" else 'unit: "\'"')
        spec = load(tmp_path, text)
        assert spec.schema.unit == name


def test_names_that_postgres_would_cut_to_the_same_are_refused(tmp_path: Path) -> None:
    extra = f"      {'é' * 32}a: boolean\n      {'é' * 32}b: boolean\n"
    (found,) = problems(tmp_path, SHOP + extra)
    assert found.endswith("are the same to PostgreSQL, which reads 63 bytes of a name; rename one")


def test_five_hundred_columns(tmp_path: Path) -> None:
    extra = "".join(f"      c{i}: {{type: integer, domain: {{min: 0, max: {i}}}}}\n" for i in range(500))
    spec = load(tmp_path, SHOP + extra)
    assert spec.schema.table("customer").column("c499").domain == Range(0, 499)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("((a OR b) AND (c > (0)::numeric))", "(a OR b) AND c > 0"),
        ("(k <> ALL (ARRAY['x'::text, 'y'::text]))", "NOT k IN ('x', 'y')"),
        ("(mood = 'calm'::sales.\"Mood x\")", "mood = 'calm'"),
        ("((a / (2)::numeric) > 1)", "a / CAST(2 AS DECIMAL) > 1"),  # without the cast it would be whole
        ("((a)::text < (b)::text)", "CAST(a AS TEXT) < CAST(b AS TEXT)"),  # numbers as text sort otherwise
        ("(a = ANY (b))", "(a = ANY (b))"),
        ("(lower((k)::text) = 'x'::text)", "(lower((k)::text) = 'x'::text)"),
        ("a - (b - c) > 0", "a - (b - c) > 0"),
    ],
)
def test_stored_checks_become_readable_and_stay_so(stored: str, expected: str) -> None:
    assert readable(stored, ["k"]) == expected
    assert readable(expected, ["k"]) == expected


def test_only_conditions_are_checks() -> None:
    for expression in ("a b", "count(a) > 1", "a IN (SELECT 1)", "a <=", "1; 2", "x = $1"):
        assert parse_check(expression) is None, expression
    assert not any(is_contained(text) for text in ("a)", "(a", "a -- b", "a /* b", "'a", '"a', "$$a$$", "a;", "", "\0"))
    assert all(is_contained(text) for text in ("E'it\\'s' = a", "'--' = \"/*\"", "a->>'x' = ';'"))


def test_spans_of_time() -> None:
    day = 86_400 * 10**6
    for text, expected in {
        "P1DT2H": day + 7200 * 10**6, "1 day 02:00:00": day + 7200 * 10**6, "-1:30": -5400 * 10**6, "P2W": 14 * day,
        "3 mons 2 days": 92 * day, "P1Y": 360 * day, "1.5 hours": 5400 * 10**6, "2 days -01:00": 2 * day - 3600 * 10**6,
        "-PT0.000001S": -1, "P": None, "PT": None, "1": None, "": None, "1 fortnight": None, "9e99 days": None,
        "99999999999999 years": None,
    }.items():  # fmt: skip
        assert parse_duration(text) == expected, text
        if expected is not None:
            assert parse_duration(duration_text(expected)) == expected


def test_learn_is_for_what_has_a_distribution(tmp_path: Path) -> None:
    learned = SHOP.replace("domain: {min: PT0S, max: 30 days}", "domain: learn")
    assert load(tmp_path, learned).schema.table("customer").column("stay").domain == Learn()


def test_a_list_to_learn_is_of_whole_numbers_that_are_no_differences(tmp_path: Path) -> None:
    codes = SHOP.replace("domain: {min: PT0S, max: 30 days}", "domain: {values: learn}")
    (problem,) = problems(tmp_path, codes)
    assert problem.startswith("customer.stay: values: learn on a column of type interval")
    whole = SHOP.replace("type: interval, domain: {min: PT0S, max: 30 days}", "type: integer, domain: {values: learn}")
    spec = load(tmp_path, whole)
    assert spec.schema.table("customer").column("stay").domain == Learn(listed=True)
    assert "domain: {values: learn}" in dump_spec(spec)
    pure = problems(tmp_path, whole.replace("delta: 1e-9", "delta: 0"))
    assert any(problem.startswith("customer.stay: a list of values cannot be learned") for problem in pure)
