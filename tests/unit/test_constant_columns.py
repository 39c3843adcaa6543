"""What stays the same in all rows of one owner does so in synthetic rows, in however many columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.compare_maker import sample_tables
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from tests.helpers.planted import place_of

WORDS = tuple("abcde")
CONSTANT = [f"c{number}" for number in range(15)]


def test_a_contract_keeps_what_it_is_from_year_to_year(tmp_path: Path) -> None:
    """Each has a row in two or three different years, and fifteen columns that hardly change."""
    rng = np.random.default_rng(1)
    n = 3000
    key = ForeignKey("year", ("contract_id",), "contract", ("id",), max_children=3, owner=True)
    number = Column("id", ColumnType.INTEGER)
    columns = [Column(name, ColumnType.CATEGORY, Values(WORDS)) for name in CONSTANT]
    owner = Column("contract_id", ColumnType.INTEGER)
    year = Column("year", ColumnType.INTEGER, Range(2001, 2006))
    contract = Table("contract", (number,), ("id",))
    years = Table("year", (owner, year, *columns), ("contract_id", "year"), (key,))
    rows = [rng.choice(6, size, replace=False) for size in rng.integers(2, 4, n)]
    owners = np.repeat(np.arange(n), [len(row) for row in rows])
    words = np.array(WORDS)[rng.choice(5, (n, len(CONSTANT)), p=[0.4, 0.3, 0.15, 0.1, 0.05])]
    constant = np.where(rng.random((len(owners), len(CONSTANT))) < 0.01, "e", words[owners])
    tables = {
        "contract": pa.table({"id": np.arange(n)}),
        "year": pa.table(
            {"contract_id": owners, "year": 2001 + np.concatenate(rows), **dict(zip(CONSTANT, constant.T, strict=True))}
        ),
    }
    spec = place_of(tmp_path, Schema("insurer", (contract, years), "contract"), tables).spec
    made = sample_tables(spec, tables, 3.2, 1e-9, 0, "privbench")["year"].to_pandas()
    assert len(made) == pytest.approx(len(owners), rel=0.03)
    assert not made.duplicated(["contract_id", "year"]).any()
    for name in CONSTANT:
        agree = made.groupby("contract_id")[name].nunique()[made.groupby("contract_id").size() > 1] == 1
        assert agree.mean() > 0.9, name
        shares = made[name].value_counts(normalize=True)
        assert [shares[word] for word in WORDS] == pytest.approx([0.4, 0.3, 0.15, 0.1, 0.05], abs=0.03)
