"""JSON documents are taken apart into a shape and leaves, which are columns, and put together again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privbench_core.columns.documents import leaf_values, with_documents
from privbench_core.engines import engine_of, open_engine
from privbench_core.errors import SourceError, SpecError
from privbench_core.schema.columns import Column, ColumnType, Learn
from privbench_core.schema.documents import SHAPE, WHOLE, Leaf, find_leaf, known_leaves, parse_document, shape_of
from privbench_core.schema.tables import Schema, Table
from tests.helpers.examples import examples
from tests.helpers.noise import SeededNoise
from tests.helpers.planted import integer, owner_key, place_of, rows_of
from tests.helpers.specs import load, problems

PAYLOAD = Column("payload", ColumnType.JSON, Learn(), nullable=True)
TABLE = Table("event", (integer("id"), PAYLOAD), ("id",))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["2026-02-29", "2026-02-28", "2026-03-01T10:00:00Z", "2026-03-01 10:00:00.120", "T", "\ud800"])
)
DOCUMENTS = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)


def texts(*documents: Any) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([None if d is None else json.dumps(d) for d in documents], pa.string())])


def apart(documents: pa.ChunkedArray) -> dict[str, pa.Array]:
    """The shape and all leaves of some documents, by name."""
    shapes = leaf_values(documents, Leaf(PAYLOAD, SHAPE))
    leaves = known_leaves(PAYLOAD, shapes.drop_null().unique().to_pylist())
    found = {Leaf(PAYLOAD, SHAPE).name: shapes.combine_chunks()}
    return found | {leaf.name: leaf_values(documents, leaf).combine_chunks() for leaf in leaves}


def put_together(columns: dict[str, pa.Array]) -> list[Any]:
    made = with_documents(TABLE, columns, np.random.default_rng(0))["payload"]
    return [None if text is None else json.loads(text) for text in made.to_pylist()]


def test_documents_come_out_as_they_went_in() -> None:
    documents = [
        {"type": "sale", "amount": 19.99, "items": 2, "flags": ["gift", "express"], "by": None, "none": {}, "no": []},
        {"type": "login", "ok": True, "at": "2026-03-01T10:00:00.120Z", "on": "2026-03-01", "device": {"v": "1.0"}},
        {"type": "sale", "amount": 20, "items": 1, "flags": ["gift", "express"], "by": None, "none": {}, "no": []},
        ["a", 1.5],
        "text",
        None,
    ]
    assert put_together(apart(texts(*documents))) == documents


def test_a_leaf_is_a_column_of_its_kind() -> None:
    columns = apart(texts({"amount": 1.5, "n": 3, "at": "2026-03-01", "who": {"name": "x"}}, {"amount": 2}))
    assert {name: TABLE.column(name).type for name in columns} == {
        "payload->shape[]": ColumnType.CATEGORY,
        'payload->number["amount"]': ColumnType.DECIMAL,  # 2 as well: elsewhere it is no whole number
        'payload->integer["n"]': ColumnType.INTEGER,
        'payload->date["at"]': ColumnType.DATE,
        'payload->text["who","name"]': ColumnType.CATEGORY,
    }
    assert columns['payload->number["amount"]'].to_pylist() == [1.5, 2]
    assert columns['payload->integer["n"]'].to_pylist() == [3, None]


@examples(40, 100)
@given(st.lists(DOCUMENTS, min_size=1, max_size=3))
@example([{"a": 10**400}])
@example([1e300, -(2**63)])
def test_any_document_has_a_shape_and_a_value_for_each_leaf_of_it(documents: list[Any]) -> None:
    given_texts = pa.chunked_array([pa.array([json.dumps(document) for document in documents], pa.string())])
    columns = apart(given_texts)
    leaf_values(given_texts, Leaf(PAYLOAD, WHOLE))
    shapes = columns.pop("payload->shape[]").to_pylist()
    for place, shape in enumerate(shapes):
        assert shape is not None
        for leaf in known_leaves(PAYLOAD, [shape]):
            same = next(columns[n] for n in (leaf.name, leaf.name.replace("->integer", "->number")) if n in columns)
            assert same[place].is_valid
    for name in columns:
        leaf = find_leaf(TABLE.attributes, name)
        assert leaf is not None
        assert leaf.name == name


@given(st.text())
@example('{"a": ' * 100_000)
@example("[1e999, NaN, -Infinity]")
@example('{"\\ud800": "\\u0000"}')
def test_any_text_has_a_shape(text: str) -> None:
    values = pa.chunked_array([pa.array([text], pa.string())])
    for kind in (SHAPE, WHOLE):
        assert leaf_values(values, Leaf(PAYLOAD, kind)).null_count == 0


def test_a_leaf_that_was_not_drawn_is_that_of_another_document_of_the_shape() -> None:
    columns = apart(texts({"n": 5}, {"n": 6}, {"n": 7}))
    columns['payload->integer["n"]'] = pa.array([5, None, 5], pa.int64())
    assert put_together(columns) == [{"n": 5}] * 3
    del columns['payload->integer["n"]']
    assert put_together(columns) == [{"n": 0}] * 3


def test_long_arrays_and_deep_documents_are_cut() -> None:
    assert len(shape_of(list(range(100)))) == 8
    assert shape_of(parse_document("[" * 20 + "]" * 20)) == [[[[[[[[None]]]]]]]]


def events(units: int) -> tuple[Schema, dict[str, pa.Table]]:
    rng = np.random.default_rng(0)
    user = Table("user", (integer("id"), Column("settings", ColumnType.JSON, Learn())), ("id",))
    event = Table("event", (integer("id"), integer("user"), PAYLOAD), ("id",), (owner_key("event", "user", "user", 5),))
    settings = [json.dumps({"theme": t, "tabs": [1, 2]}) for t in ("dark", "light", "auto")]
    payloads = []
    for i in range(3 * units):
        if rng.random() < 0.6:
            payloads.append({"type": "sale", "amount": round(float(rng.lognormal(3, 1)), 2), "flags": ["gift"]})
        else:
            payloads.append({"type": "login", "ok": bool(rng.random() < 0.9), "who": f"secret {i}"})
    n = np.arange(3 * units)
    tables = {
        "user": rows_of(user, id=np.arange(units), settings=[settings[i] for i in rng.integers(0, 3, units)]),
        "event": rows_of(event, id=n, user=n % units, payload=[json.dumps(each) for each in payloads]),
    }
    return Schema("site", (user, event), "user"), tables


def test_keys_types_and_values_of_documents_are_kept(tmp_path: Path) -> None:
    schema, tables = events(600)
    place = place_of(tmp_path, schema, tables)
    place.run_with(SeededNoise(0), 30.0)
    made = pa.parquet.read_table(place.out / "data" / "event.parquet")["payload"].to_pylist()
    documents = [json.loads(text) for text in made]
    kinds = {"sale": {"type": str, "amount": float, "flags": list}, "login": {"type": str, "ok": bool, "who": str}}
    of_kind = [kinds["sale" if "amount" in document else "login"] for document in documents]
    assert [document.keys() for document in documents] == [kind.keys() for kind in of_kind]
    assert np.mean([d["type"] == ("sale" if "amount" in d else "login") for d in documents]) > 0.95
    assert np.mean(["amount" in document for document in documents]) == pytest.approx(0.6, abs=0.05)
    assert np.mean([d["ok"] for d in documents if "ok" in d]) == pytest.approx(0.9, abs=0.05)
    assert np.median([d["amount"] for d in documents if "amount" in d]) == pytest.approx(np.exp(3), rel=0.15)
    assert not any("secret 1" in text for text in made)
    settings = pa.parquet.read_table(place.out / "data" / "user.parquet")["settings"].to_pylist()
    assert set(settings) == {json.dumps({"tabs": [1, 2], "theme": t}) for t in ("dark", "light", "auto")}


def test_documents_are_opaque_where_noise_hides_their_shapes(tmp_path: Path) -> None:
    schema, tables = events(30)
    place = place_of(tmp_path, schema, tables)
    result = place.run_with(SeededNoise(0), 0.1)
    made = pa.parquet.read_table(place.out / "data" / "event.parquet")["payload"].to_pylist()
    assert all(isinstance(json.loads(text), dict) for text in made if text is not None)
    assert any("noise hid the structure of documents" in line for line in result.warnings)


SPEC = """
database: d
source: data
privacy: {unit: user, delta: 1.0e-9, epsilons: [1], lifetime: 4}
tables:
  user:
    primary_key: id
    columns:
      id: integer
      doc: {type: json, domain: learn}
"""


def test_a_spec_has_documents_taken_apart_where_a_list_may_be_learned(tmp_path: Path) -> None:
    spec = load(tmp_path, SPEC)
    assert spec.schema.table("user").column("doc").domain == Learn()
    assert engine_of(spec) == "memory"
    assert any("structure cannot be learned with delta 0" in p for p in problems(tmp_path, SPEC.replace("1.0e-9", "0")))
    wrong = SPEC.replace("domain: learn", "domain: {values: [a]}")
    assert any("then only lengths are modelled" in problem for problem in problems(tmp_path, wrong))
    with pytest.raises(SpecError, match="no such column"):
        spec.schema.table("user").column('doc->text[1.5, "x')


def test_engines_in_databases_refuse_documents(tmp_path: Path) -> None:
    spec = load(tmp_path, f"engine: duckdb\n{SPEC}")
    with pytest.raises(SourceError, match=r"the documents of user\.doc into values; run with --engine memory"):
        open_engine(spec, None, b"", tmp_path)  # type: ignore[arg-type]


def test_keys_that_come_and_go_are_kept_without_a_list_of_shapes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    user = Table("user", (integer("id"), Column("doc", ColumnType.JSON, Learn())), ("id",))
    keys = [f"k{i}" for i in range(8)]
    documents = [{key: int(rng.integers(9)) for key in keys if rng.random() < 0.5} for _ in range(1000)]
    rows = rows_of(user, id=np.arange(1000), doc=[json.dumps(document) for document in documents])
    place = place_of(tmp_path, Schema("site", (user,), "user"), {"user": rows})
    place.run_with(SeededNoise(0), 20.0)
    made = pa.parquet.read_table(place.out / "data" / "user.parquet")["doc"].to_pylist()
    for key in keys:
        assert np.mean([key in json.loads(text) for text in made]) == pytest.approx(0.5, abs=0.1)
    assert np.mean([len(json.loads(text)) for text in made]) == pytest.approx(4, abs=0.3)


def test_documents_of_leaves_alone_have_those_that_were_drawn() -> None:
    columns = {
        'payload->integer["a","b"]': pa.array([1, None, None], pa.int64()),
        'payload->text["a","c"]': pa.array(["x", None, "y"]),
        "payload->text[0]": pa.array([None, None, None], pa.string()),
        'payload->boolean["list",0]': pa.array([None, None, None], pa.bool_()),
        'payload->boolean["list",2]': pa.array([None, None, True], pa.bool_()),
    }
    assert put_together(columns) == [{"a": {"b": 1, "c": "x"}}, None, {"a": {"c": "y"}, "list": [True]}]
