"""Keys of every kind in ranges: valid, bounded, as dependent and as popular as in one piece, the same bytes."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core import guards
from privbench_core.errors import ValidationError
from privbench_core.sampling import ranges
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key
from privbench_core.synthesizers.steps import sample
from privbench_core.synthesizers.steps.sample import sampled_key
from privbench_core.synthesizers.steps.sampled import SampledTable
from tests.helpers.bank import BOXES, MOST_ADVISED, MOST_HELD, MOST_MEMBERS, bank
from tests.helpers.planted import (
    broken_expectations,
    category,
    codes_of,
    integer,
    made_exactly,
    owner_key,
    place_of,
    rows_of,
    texts,
    tvd,
)

MOST = 400
SCHEMA, TABLES = bank()
Made = Mapping[Key, Artifact]


@pytest.fixture(scope="module")
def one() -> Made:
    return made_exactly(SCHEMA, TABLES)


@pytest.fixture(scope="module")
def several() -> Made:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guards, "RANGE_ROWS", MOST)
        return made_exactly(SCHEMA, TABLES)


def table_of(made: Made, name: str) -> SampledTable:
    return SampledTable(made[sampled_key(SCHEMA, SCHEMA.table(name))])


def rows_in(made: Made, name: str) -> dict[str, list[object]]:
    return table_of(made, name).whole_rows().to_pydict()


def degrees(made: Made, child: str, column: str, parents: int) -> np.ndarray:
    used = [value for value in rows_in(made, child)[column] if value is not None]
    found = np.zeros(parents, dtype=int)
    numbers = np.sort(np.unique(used, return_counts=True)[1])[::-1]
    found[: len(numbers)] = numbers
    return found


def pairs(made: Made, child: str, column: str, parent: str) -> np.ndarray:
    """Share of each pair of the kinds of a row and of what it refers to."""
    above, rows = (table_of(made, name).whole_rows() for name in (parent, child))
    kind = dict(zip(above["id"].to_pylist(), codes_of(above["kind"]), strict=True))
    found = np.zeros((3, 3))
    for mine, value in zip(codes_of(rows["kind"]), rows[column].to_pylist(), strict=True):
        if value is not None:
            found[mine, kind[value]] += 1
    return found / found.sum()


def test_all_private_tables_are_in_ranges(several: Made):
    for table in SCHEMA.private_tables:
        assert ranges.can_be_cut(SCHEMA, table)
    assert all(len(table_of(several, name).rows) > 4 for name in ("client", "account", "client_order"))


def test_references_stay_within_the_unit(several: Made):
    account, order, client = (rows_in(several, name) for name in ("account", "client_order", "client"))
    owner = dict(zip(account["id"], account["client_id"], strict=True))
    assert all(owner[a] == c for a, c in zip(order["account"], order["client_id"], strict=True))
    card = rows_in(several, "card")
    cards = set(zip(card["client_id"], card["number"], strict=True))
    assert set(zip(order["client_id"], order["number"], strict=True)) <= cards
    best = [(b, c) for b, c in zip(client["best"], client["id"], strict=True) if b is not None]
    assert len(best) > 1000
    assert all(owner[b] == c for b, c in best)


def test_rows_that_refer_to_rows_of_their_table_make_no_cycle(several: Made):
    client = rows_in(several, "client")
    above = {c: a for c, a in zip(client["id"], client["adviser"], strict=True) if a is not None}
    assert len(above) > 500
    for start in above:
        seen, at = set[object](), start
        while at in above:
            assert at not in seen
            seen.add(at)
            at = above[at]


@pytest.mark.parametrize(
    ("child", "column", "parents", "most", "near"),
    [
        ("client", "adviser", 2400, MOST_ADVISED, 0.1),
        ("client", "club_id", 300, MOST_MEMBERS, 0.05),
        ("account", "branch_id", 12, MOST_HELD, 0.02),
        ("account", "box", BOXES, 1, 0.1),
        ("client_order", "account", 9600, 12, 0.1),
    ],
)
def test_parents_are_as_popular_as_in_one_piece_and_bounded(
    one: Made, several: Made, child: str, column: str, parents: int, most: int, near: float
):
    there, found = (degrees(made, child, column, parents) for made in (one, several))
    assert found[0] <= most
    assert found.sum() == pytest.approx(there.sum(), rel=0.05, abs=4)
    assert tvd(found / found.sum(), there / there.sum()) < near


@pytest.mark.parametrize(
    ("child", "column", "parent"),
    [("client", "adviser", "client"), ("client", "club_id", "club"), ("client_order", "account", "account")],
)
def test_references_depend_on_both_ends_as_in_one_piece(one: Made, several: Made, child: str, column: str, parent: str):
    assert tvd(pairs(one, child, column, parent), pairs(several, child, column, parent)) < 0.05


def test_public_rows_are_referred_to_as_often_each(one: Made, several: Made):
    counts = [np.bincount(rows_in(made, "account")["branch_id"], minlength=12) for made in (one, several)]
    assert tvd(*(each / each.sum() for each in counts)) < 0.02


def test_which_keys_stay_are_allocated_or_keep_a_table_in_one_piece():
    client, account, order = (SCHEMA.table(name) for name in ("client", "account", "client_order"))
    keys = (key for table in (client, account, order) for key in table.foreign_keys if not key.owner)
    reach = {key.columns: ranges.reach(SCHEMA, SCHEMA.table(key.child), key) for key in keys}
    inside, own, allocated = ranges.Reach.INSIDE, ranges.Reach.OWN, ranges.Reach.ALLOCATED
    assert (reach["adviser",], reach["best",], reach["client_id", "number"]) == (own, inside, inside)
    assert (reach["club_id",], reach["branch_id",], reach["box",]) == (allocated, allocated, allocated)
    beside = ForeignKey("account", ("branch_id", "other"), "club", ("founder", "id"), max_children=3)
    overlapping = replace(account, foreign_keys=(*account.foreign_keys, beside))
    tables = tuple(overlapping if table is account else table for table in SCHEMA.tables)
    assert not ranges.can_be_cut(replace(SCHEMA, tables=tables), overlapping)


@pytest.mark.slow
def test_a_whole_run_has_the_same_bytes_for_any_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guards, "RANGE_ROWS", 3 * MOST)
    place = place_of(tmp_path, SCHEMA, TABLES)

    def run(workers: int) -> dict[str, bytes]:
        assert not broken_expectations(place.run(workers=workers))
        return {str(f.relative_to(place.out)): f.read_bytes() for f in place.out.rglob("*") if f.is_file()}

    found = run(1)
    assert {"data/client/part-00001.parquet", "data/client_order/part-00001.parquet"} <= found.keys()
    parts = sorted(place.spec.state.rglob("*.parts"))
    assert len(parts) >= 4
    for number, path in enumerate(parts):
        assert {file.suffix for file in path.iterdir()} == {".bin"}  # what was allocated is gone
        if number % 2:
            shutil.rmtree(path)
        else:
            (path / "00001.bin").unlink()  # as a killed run leaves it
    assert run(2) == found


def test_a_range_that_refers_out_of_its_unit_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guards, "RANGE_ROWS", 3 * MOST)
    draw = sample.RangeCompletion.made

    def outside(self: sample.RangeCompletion, number: int) -> object:
        sample = draw(self, number)
        if number != 1:
            return sample
        others = sample.table["best"].to_pylist()
        at = sample.table.column_names.index("best")
        return replace(sample, table=sample.table.set_column(at, "best", pa.array([*others[1:], None], pa.int64())))

    monkeypatch.setattr(sample.RangeCompletion, "made", outside)
    with pytest.raises(ValidationError, match="client: best account of the same unit"):
        place_of(tmp_path, SCHEMA, TABLES).run(workers=1)


def transfers() -> tuple[Schema, dict[str, pa.Table]]:
    """Transfers to any account, with fees from one of the same client, and branches, of which there are none."""
    client = Table("client", (integer("id"), category("kind", 3)), ("id",))
    account = Table(
        "account",
        (integer("id"), integer("client_id"), category("kind", 3)),
        ("id",),
        (owner_key("account", "client_id", "client", 2),),
    )
    branch = Table("branch", (integer("id"),), ("id",), public=True)
    columns = (*(integer(name) for name in ("id", "source", "target", "fee")), integer("branch", nullable=True))
    keys = (
        owner_key("transfer", "source", "account", 2),
        ForeignKey("transfer", ("target",), "account", ("id",), max_children=20),
        ForeignKey("transfer", ("fee",), "account", ("id",), same_unit=True),
        ForeignKey("transfer", ("branch",), "branch", ("id",), max_children=5, optional=True),
    )
    transfer = Table("transfer", (*columns, category("kind", 3)), ("id",), keys)
    rng, number = np.random.default_rng(0), 1500
    every, kind = np.arange(number), texts(rng.integers(0, 3, number))
    return Schema("transfers", (client, branch, account, transfer), "client"), {
        "client": rows_of(client, id=every[:1000], kind=kind.slice(0, 1000)),
        "branch": rows_of(branch, id=every[:0]),
        "account": rows_of(account, id=every, client_id=every % 1000, kind=kind),
        "transfer": rows_of(
            transfer,
            id=every,
            source=every,
            fee=every,
            target=rng.integers(0, number, number),
            branch=pa.nulls(number, pa.int64()),
            kind=kind,
        ),
    }


def test_second_keys_to_the_owners_table_and_public_tables_without_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(guards, "RANGE_ROWS", MOST)
    schema, tables = transfers()
    assert all(ranges.can_be_cut(schema, table) for table in schema.private_tables)
    place = place_of(tmp_path, schema, tables)
    assert not broken_expectations(place.run(workers=1))
    assert len(list(place.out.glob("data/transfer/part-*.parquet"))) > 2
