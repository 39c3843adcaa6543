"""Tables with a second private parent in ranges: as popular, as dependent and as bounded as in one piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core import guards
from privbench_core.schema.tables import Schema
from privbench_core.synthesizers.artifact import Artifact, PartFiles
from privbench_core.synthesizers.contract import Key
from privbench_core.synthesizers.steps.allocated_keys import Allocation
from privbench_core.synthesizers.steps.drawing import TableModels
from privbench_core.synthesizers.steps.sample import RangeDrawing, pieces_of
from privbench_core.synthesizers.steps.sampled import SampledTable
from privbench_core.workers import side_by_side
from tests.helpers.covering import covering
from tests.helpers.market import market
from tests.helpers.planted import codes_of, made_exactly, rows_of, texts, tvd
from tests.helpers.processes import killed_when

MOST = 700


@pytest.mark.parametrize("rows", [[1], [5, 5, 5], [0, 1000, 3, 0], [1] * 40, [10**6, 1, 1]])
@pytest.mark.parametrize("count", [0, 1, 7, 1023, 1024, 100_000])
def test_every_place_is_in_one_range_and_ranges_get_their_shares(rows: list[int], count: int):
    allocation = Allocation.by_rows(rows)
    found = [allocation.places(number, count, np.random.default_rng(5)) for number in range(len(rows))]
    assert np.sort(np.concatenate(found)).tolist() == list(range(count))
    for places, share in zip(found, np.array(rows) / sum(rows), strict=True):
        assert len(places) == pytest.approx(count * share, abs=6 + count / 900)
        if share == 0:
            assert len(places) <= count / 1000


def drawn(schema: Schema, tables: Mapping[str, pa.Table], most: int, **how: object) -> dict[Key, Artifact]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guards, "RANGE_ROWS", most)
        return made_exactly(schema, tables, **how)  # type: ignore[arg-type]


def rows_in(made: Mapping[Key, Artifact], name: str) -> pa.Table:
    return SampledTable(made["sample", name]).whole_rows()


def degrees(made: Mapping[Key, Artifact], key: str = "product_id") -> np.ndarray:
    """References to each product, descending."""
    products = rows_in(made, "product").column("id").to_numpy()
    bought = rows_in(made, "sale").column(key).drop_null().to_numpy()
    assert set(bought.tolist()) <= set(products.tolist())
    found = np.zeros(len(products), dtype=int)
    numbers = np.unique(bought, return_counts=True)[1]
    found[: len(numbers)] = np.sort(numbers)[::-1]
    return found


def of_colours(made: Mapping[Key, Artifact]) -> np.ndarray:
    """Sales by way and colour of the product."""
    products, sales = rows_in(made, "product"), rows_in(made, "sale")
    colour = dict(zip(products.column("id").to_pylist(), codes_of(products.column("colour")), strict=True))
    ways = codes_of(sales.column("way"))
    pairs = [(way, colour[p]) for way, p in zip(ways, sales.column("product_id").to_pylist(), strict=True) if p]
    found = np.zeros((3, 3))
    np.add.at(found, tuple(np.array(pairs).T), 1)
    return found / found.sum()


@pytest.mark.parametrize(("power", "options"), covering([0.0, 1.3], [{}, {"usefulness": 4.0}]))
def test_popularity_and_dependence_are_those_of_one_piece(power: float, options: dict[str, object]):
    schema, tables = market(power=power)
    one, several = (drawn(schema, tables, most, **options) for most in (1 << 20, MOST))
    assert len(SampledTable(several["sample", "sale"]).rows) > 10
    assert len(SampledTable(several["sample", "product"]).rows) > 2
    assert rows_in(several, "sale").num_rows == pytest.approx(rows_in(one, "sale").num_rows, abs=3)
    there, found = degrees(one), degrees(several)
    assert found[0] == pytest.approx(there[0], rel=0.03, abs=2)
    assert tvd(found / found.sum(), there / there.sum()) < 0.05
    assert tvd(of_colours(one), of_colours(several)) < 0.02


@pytest.mark.parametrize("pairs", [False, True])
def test_one_parent_with_half_of_all_children_keeps_them(pairs: bool):
    schema, tables = market(sales=9000, products=40)
    bought = np.where(np.random.default_rng(1).random(9000) < 0.5, 0, np.arange(9000) % 40)
    home = np.arange(9000) % 1500
    if pairs:
        home, bought = np.unique(np.column_stack([home, bought]), axis=0).T
        schema, tables = market(sales=9000, products=40, pairs=True)
    columns = {"customer_id": home, "product_id": bought, "way": texts(bought % 3)}
    table = schema.table("sale")
    tables["sale"] = rows_of(table, **columns, **({} if pairs else {"id": np.arange(len(home))}))
    one, several = (drawn(schema, tables, most) for most in (1 << 20, MOST))
    there, found = degrees(one), degrees(several)
    assert there[0] > 0.2 * there.sum()
    assert found[0] == pytest.approx(there[0], rel=0.03)
    assert tvd(found / found.sum(), there / there.sum()) < 0.03
    assert rows_in(several, "sale").num_rows == pytest.approx(rows_in(one, "sale").num_rows, rel=0.005)
    if pairs:
        sales = rows_in(several, "sale").select(["customer_id", "product_id"]).to_pydict()
        assert len(set(zip(*sales.values(), strict=True))) == len(sales["product_id"])


@pytest.mark.parametrize("most", [6, 60])
def test_no_parent_has_more_children_than_its_key_allows(most: int):
    schema, tables = market(sales=9000, products=1600, power=0.0, most=most)
    bought = np.arange(9000) % 1600  # 5 or 6 each: with a bound of 6, almost every place is needed
    tables["sale"] = tables["sale"].set_column(2, "product_id", pa.array(bought))
    several = drawn(schema, tables, MOST)
    assert degrees(several)[0] <= most
    assert rows_in(several, "sale").num_rows > 0.98 * 9000


def test_unique_references_in_ranges_are_unique_and_all_there():
    schema, tables = market(sales=1500, products=1600)
    sale = replace(schema.table("sale"), unique=(("product_id",),))
    schema = replace(schema, tables=(*schema.tables[:2], sale))
    tables["sale"] = tables["sale"].set_column(2, "product_id", pa.array(np.random.default_rng(0).permutation(1500)))
    several = drawn(schema, tables, 200)
    assert len(SampledTable(several["sample", "sale"]).rows) > 5
    assert degrees(several)[0] == 1
    assert rows_in(several, "sale").num_rows > 0.99 * 1500


def test_more_ranges_than_parents_and_a_parent_without_rows():
    schema, tables = market(products=3)
    several = drawn(schema, tables, 200)
    assert len(SampledTable(several["sample", "sale"]).rows) > 30
    one = drawn(schema, tables, 1 << 20)
    assert degrees(several).tolist() == pytest.approx(degrees(one).tolist(), rel=0.03)
    schema, tables = market(optional=True)
    tables["product"] = tables["product"].slice(0, 0)
    tables["sale"] = tables["sale"].set_column(2, "product_id", pa.nulls(9000, pa.int64()))
    several = drawn(schema, tables, MOST)
    assert rows_in(several, "sale").num_rows == pytest.approx(9000, abs=60)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.bin"))}


def drawing_of(schema: Schema, made: Mapping[Key, Artifact], folder: Path) -> RangeDrawing:
    models = TableModels.of(schema, schema.table("sale"), made, 1.0)
    above = {name: SampledTable(made["sample", name]) for name in ("customer", "product")}
    drawing = RangeDrawing(models, 0, above, PartFiles(folder), pieces_of(models, 0, above))
    assert len(drawing.pieces) > 1
    return drawing


def _draw(drawing: RangeDrawing) -> None:
    drawing = drawing.with_allocated_keys(2)
    list(side_by_side(drawing, range(len(drawing.pieces)), 2))


@pytest.mark.slow
def test_a_killed_run_resumes_at_the_missing_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    schema, tables = market()
    made = drawn(schema, tables, MOST)
    monkeypatch.setattr(guards, "RANGE_ROWS", MOST)
    whole = drawing_of(schema, made, tmp_path / "whole").with_allocated_keys()
    expected = list(side_by_side(whole, range(len(whole.pieces)), 1))
    folder = tmp_path / "killed"
    killed_when(lambda: len(list(folder.glob("*.bin"))) >= 2, _draw, drawing_of(schema, made, folder))
    (folder / "allocated-0" / "00001.bin").write_bytes(b"half")
    (folder / "00001.bin").unlink(missing_ok=True)
    again = drawing_of(schema, made, folder).with_allocated_keys(2)
    assert list(side_by_side(again, range(len(again.pieces)), 2)) == expected
    assert files(folder) == files(tmp_path / "whole")
