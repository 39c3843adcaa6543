"""Tables that a spec leaves empty: in the bundle's schema without rows, never read, at no cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest

from privbench_core.api import publish
from privbench_core.errors import NoiseOnlyError
from privbench_core.pipeline import plan_for
from privbench_core.privacy.neighbour_relation import differences, neighbour_relation
from privbench_core.publishing import read_bundle
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.rules import find_problems
from tests.helpers.planted import Place, category, integer, owner_key, place_of, planted_pair, rows_of, texts

UNUSED = ("note", "remark")


def with_unused(parents: int = 300) -> tuple[Schema, dict[str, object]]:
    """Parents and children, and two tables of three rows that most of the budget would go to."""
    schema, tables = planted_pair(parents)
    many = tuple(category(f"c{i}", 3) for i in range(6))
    to_parent = owner_key("note", "parent_id", "parent", 1000)
    note = Table("note", (integer("id"), integer("parent_id"), *many), ("id",), (to_parent,))
    to_note = owner_key("remark", "note_id", "note", 1000)
    remark = Table("remark", (integer("id"), integer("note_id"), *many), ("id",), (to_note,))
    cells = {column.name: texts(np.zeros(3, int)) for column in many}
    tables["note"] = rows_of(note, id=np.arange(3), parent_id=np.full(3, 7), **cells)
    tables["remark"] = rows_of(remark, id=np.arange(3), note_id=np.arange(3), **cells)
    return replace(schema, tables=(remark, note, *schema.tables)), tables


def emptied(place: Place, *names: str) -> Place:
    schema = place.spec.schema
    tables = tuple(table.emptied if table.name in names else table for table in schema.tables)
    return replace(place, spec=replace(place.spec, schema=replace(schema, tables=tables)))


def test_a_refusal_offers_to_leave_tables_empty_and_that_works(tmp_path: Path) -> None:
    place = place_of(tmp_path, *with_unused())
    with pytest.raises(NoiseOnlyError) as refused:
        place.run(3.2, accept_noise=False)
    assert "empty: true at note, remark if no rows are needed there" in str(refused.value)
    assert place.spent < 0.1 * place.plan_total(3.2)
    text = place.spec.path.read_text(encoding="utf-8")
    for name in UNUSED:
        text = text.replace(f"\n  {name}:\n", f"\n  {name}:\n    empty: true\n")
        (Path(place.spec.source) / f"{name}.parquet").unlink()  # nothing reads it
    place.spec.path.write_text(text, encoding="utf-8")
    spec = load_spec(place.spec.path)
    assert spec.schema == emptied(place, *UNUSED).spec.schema
    place.spec.path.write_text(dump_spec(spec), encoding="utf-8")
    assert load_spec(place.spec.path) == spec
    assert not any(step.table in UNUSED for step in plan_for(spec, 3.2).steps if step.reads)
    result = replace(place, spec=spec).run(3.2, accept_noise=False)
    assert result.paid == pytest.approx(place.plan_total(3.2))
    bundle = read_bundle(place.out)
    assert {
        name: facts["rows"] for name, facts in bundle.manifest["tables"].items() if name in UNUSED
    } == dict.fromkeys(UNUSED, 0)
    assert "left empty" in (place.out / "README.md").read_text(encoding="utf-8")


def test_an_empty_table_is_loaded_with_its_keys(tmp_path: Path) -> None:
    place = emptied(place_of(tmp_path, *with_unused(40)), *UNUSED)
    place.run(8.0)
    copy = tmp_path / "copy.duckdb"
    publish(place.out, copy)
    with duckdb.connect(str(copy), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM remark JOIN note ON note.id = note_id").fetchone() == (0,)
        keys = "SELECT count(*) FROM duckdb_constraints() WHERE constraint_type = 'FOREIGN KEY' AND table_name = ?"
        assert connection.execute(keys, ["note"]).fetchone() == (1,)


def test_what_is_left_empty_is_no_part_of_the_guarantee(tmp_path: Path) -> None:
    """So that it needs no new database name, and rows that are read cost what they cost without the table."""
    place = place_of(tmp_path, *with_unused())
    relations = [neighbour_relation(each.spec.schema) for each in (place, emptied(place, *UNUSED))]
    assert not differences(*relations)
    assert not relations[1].keys() & set(UNUSED)


def test_rows_refer_to_no_table_that_is_left_empty(tmp_path: Path) -> None:
    place = place_of(tmp_path, *with_unused())
    found = find_problems(emptied(place, "note").spec.schema, delta=1e-9)
    assert found[0] == (
        "remark.note_id: refers to note, which is declared empty; declare remark empty too, or remove this key and"
        " its columns"
    )
    found = find_problems(emptied(place, "parent").spec.schema, delta=1e-9)
    assert "parent: the privacy unit is declared empty; remove empty: true, or choose another unit" in found
