"""NIST's excerpts are declared by their published dictionary, and come back as SDNist reads them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.nist_data import Excerpt, as_sdnist_reads
from privbench_core.schema.columns import ColumnType, Range, Values

_DICTIONARY = {
    "PUMA": {"values": {"25-00503": "here", "48-02510": "in another excerpt"}},
    "AGEP": {"values": {"min": 0, "max": 99}},
    "MSP": {"values": {"N": "under 15", "1": "married", "6": "never married"}},
    "POVPIP": {"values": {"N": "unknown", "min": 0, "max": 500, "501": "above"}},
    "INDP": {"link": "elsewhere"},
    "DENSITY": {"values": {"min": 16.3, "max": 52864.7}},
}
_SCHEMA: dict[str, dict[str, object]] = {
    "PUMA": {"values": ["25-00503"]},
    "AGEP": {},
    "MSP": {"has_null": True},
    "POVPIP": {"has_null": True},
    "INDP": {"has_null": True, "values": ["N", "0170", "7860"]},
    "DENSITY": {},
}
_FEATURES = tuple(_SCHEMA)


@pytest.fixture
def excerpt(tmp_path: Path) -> Excerpt:
    folder = tmp_path / "ACSDataExcerpts"
    (folder / "massachusetts").mkdir(parents=True)
    (folder / "data_dictionary.json").write_text(json.dumps(_DICTIONARY))
    (folder / "massachusetts" / "ma2019.json").write_text(json.dumps({"schema": _SCHEMA}))
    lines = (",".join(_FEATURES), "25-00503,7,N,501,N,1457.1", "25-00503,40,6,N,0170,1457.1")
    (folder / "massachusetts" / "ma2019.csv").write_text("\n".join(lines) + "\n")
    return Excerpt(folder, "ma2019")


def test_an_excerpt_is_declared_by_its_dictionary(excerpt: Excerpt) -> None:
    columns = {column.name: column for column in excerpt.table(_FEATURES).columns}
    assert columns["PUMA"].domain == Values(("25-00503",))  # another excerpt's would be left out of the score
    assert columns["AGEP"].domain == Range(0, 99)
    assert columns["POVPIP"].domain == Range(0, 501)  # a code beside the range
    assert columns["INDP"].domain == Values(("0170", "7860"))
    assert (columns["INDP"].type, columns["DENSITY"].domain) == (ColumnType.CATEGORY, Values(("1457.1",)))
    assert [name for name, column in columns.items() if column.nullable] == ["MSP", "POVPIP", "INDP"]


def test_not_applicable_is_null_for_privbench_and_n_for_sdnist(excerpt: Excerpt) -> None:
    rows = excerpt.rows(_FEATURES)
    assert [rows[name].to_pylist() for name in ("MSP", "POVPIP", "INDP")] == [[None, "6"], [501, None], [None, "0170"]]
    written = as_sdnist_reads(rows)
    assert written.equals(excerpt.texts)
    codes, sizes = excerpt.codes(_FEATURES)
    assert sizes == [1, 20, 3, 503, 3, 1]
    decoded = excerpt.decode(_FEATURES, codes, np.random.default_rng(0))
    assert decoded.drop_columns("AGEP").equals(written.drop_columns("AGEP"))
    assert [int(age) // 5 for age in decoded["AGEP"].to_pylist()] == [1, 8]
