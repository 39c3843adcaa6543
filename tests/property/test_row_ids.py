"""Rows without a key are numbered by what they hold, so that no unit decides about the numbers of another's rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privbench_core.backends.integrity import check_rows
from privbench_core.backends.registry import number_rows, open_source
from privbench_core.engines.memory import PrivateDatabase
from privbench_core.errors import SpecError
from privbench_core.spec.load import dump_spec, load_spec
from tests.helpers.databases import SECRET

TEXTS = st.one_of(st.none(), st.text("a1:-\x1f", max_size=3))
OWNERS = st.sampled_from([1, 11, 111, 2])
ROWS = st.lists(st.tuples(OWNERS, TEXTS, TEXTS), max_size=12)

SPEC = """
database: clinic
source: .
privacy: {unit: patient, public: [ward], delta: 1.0e-9, epsilons: [1], lifetime: {epsilon: 9, delta: 1.0e-7}}
tables:
  patient: {primary_key: id, columns: {id: integer}}
  stay:
    row_id: generated
    foreign_keys: [{columns: patient, references: patient, max_children: 2}]
    columns: {patient: integer, kind: {type: category, domain: {values: [a, b]}, nullable: true}}
  ward:
    row_id: generated
    columns: {name: text}
"""


def table(rows: list[tuple[int, str | None, str | None]]) -> pa.Table:
    owner, first, second = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "owner": pa.array(owner, pa.int64()),
            "first": pa.array(first, pa.string()),
            "second": pa.array(second, pa.string()),
        }
    )


@given(ROWS, OWNERS)
@example([(1, "11", None), (11, "1", None)], 1)
@example([(1, "a", None), (2, "b", None)], 1)
def test_the_numbers_of_other_units_stay_when_one_goes(rows, gone):
    """Formal guarantee: the numbered rows of neighbouring databases differ by the rows of one unit, no others."""
    left = [row for row in rows if row[0] != gone]
    before, after = (
        Counter(zip(found, number_rows(table(found), SECRET).to_pylist(), strict=True)) for found in (rows, left)
    )
    assert after - before == Counter()
    assert {row[0] for row, _ in before - after} <= {gone}


@given(ROWS, st.randoms())
def test_numbers_are_distinct_and_do_not_depend_on_the_order(rows, random):
    mixed = random.sample(rows, len(rows))
    numbers = number_rows(table(rows), SECRET).to_pylist()
    assert len(set(numbers)) == len(rows)
    there = number_rows(table(mixed), SECRET).to_pylist()
    assert Counter(zip(rows, numbers, strict=True)) == Counter(zip(mixed, there, strict=True))


@given(ROWS)
def test_numbers_of_rows_depend_on_the_secret(rows):
    """Someone who can insert rows cannot search for two that get the same number, which would stop every run."""
    numbers = (number_rows(table(rows), secret).to_pylist() for secret in (SECRET, SECRET[::-1]))
    assert set.isdisjoint(*map(set, numbers))


def clinic(folder: Path, stays: dict[str, list], wards: list[str]) -> Path:
    pq.write_table(pa.table({"id": list(range(20))}), folder / "patient.parquet")
    pq.write_table(pa.table(stays), folder / "stay.parquet")
    pq.write_table(pa.table({"name": wards}), folder / "ward.parquet")
    path = folder / "spec.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


def test_tables_without_a_key_are_read_truncated_and_written(tmp_path):
    owners = np.repeat(np.arange(20), 3)
    path = clinic(tmp_path, {"patient": owners, "kind": [("a", None, "a")[i % 3] for i in range(60)]}, ["x", "x", "y"])
    spec = load_spec(path)
    assert spec.schema.table("stay").primary_key == ("row_id",)
    assert [t.name for t in spec.schema.tables if t.public] == ["ward"]
    source = open_source(spec, SECRET)
    rows = check_rows(spec.schema, {t.name: source.read(t) for t in spec.schema.tables}, spec.orphans)
    assert rows["stay"].column_names == ["patient", "kind", "row_id"]
    kept = PrivateDatabase(spec.schema, rows, b"0" * 16).kept("stay")
    assert np.bincount(owners[kept]).tolist() == [2] * 20
    before = source.fingerprint(spec.schema.table("stay"))
    order = np.random.default_rng(0).permutation(60)
    pq.write_table(pq.read_table(tmp_path / "stay.parquet").take(pa.array(order)), tmp_path / "stay.parquet")
    assert open_source(spec, SECRET).fingerprint(spec.schema.table("stay")) == before
    (tmp_path / "again.yaml").write_text(dump_spec(spec), encoding="utf-8")
    assert load_spec(tmp_path / "again.yaml").schema == spec.schema


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("row_id: generated", "row_id: yes", "stay: row_id is 'yes'; write row_id: generated where rows have no key"),
        ("row_id: generated", "row_id: generated\n    primary_key: patient", "no primary_key then"),
        ("row_id: generated", "comment: none", "stay: primary_key is missing; name its column"),
    ],
)
def test_mistakes_about_row_numbers(tmp_path, old, new, problem):
    (tmp_path / "spec.yaml").write_text(SPEC.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / "spec.yaml")
    assert problem in str(caught.value)


def test_references_that_a_removed_unit_takes_away_are_refused(tmp_path):
    """Else such a row would get another number, and truncation would keep another row beside it."""
    to_doctor = "{columns: doctor, references: doctor, optional: true, max_children: 9}"
    text = SPEC.replace("max_children: 2}]", "owner: true, max_children: 2}, " + to_doctor + "]")
    text = text.replace(
        "columns: {patient: integer,", "columns: {patient: integer, doctor: {type: integer, nullable: true},"
    )
    doctor = "{primary_key: id, foreign_keys: [{columns: id, references: patient}], columns: {id: integer}}"
    text = text.replace("  stay:", f"  doctor: {doctor}\n  stay:")
    (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"stay\.doctor: becomes NULL when a unit is removed"):
        load_spec(tmp_path / "spec.yaml")
    cascading = text.replace("optional: true, max", "optional: true, on_unit_removed: cascade, max")
    (tmp_path / "spec.yaml").write_text(cascading, encoding="utf-8")
    load_spec(tmp_path / "spec.yaml")
