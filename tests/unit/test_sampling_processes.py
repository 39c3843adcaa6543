"""Tables drawn, checked and published range by range: the same bytes for any number of processes, whatever happens."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from privbench_core import guards
from privbench_core.errors import ReleaseError
from privbench_core.schema.tables import Table
from privbench_core.synthesizers.artifact import Artifact, PartFiles
from privbench_core.synthesizers.contract import Key
from privbench_core.synthesizers.steps.drawing import TableModels
from privbench_core.synthesizers.steps.sample import RangeDrawing, pieces_of
from privbench_core.synthesizers.steps.sampled import SampledTable
from privbench_core.workers import ahead, side_by_side
from tests.helpers.planted import category, integer, made_exactly, owner_key, planted_pair, rows_of, texts
from tests.helpers.processes import PROCESSES, killed_when
from tests.helpers.servers import wait_for

MOST = 300
SCHEMA, TABLES = planted_pair(1500)


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "RANGE_ROWS", MOST)


@pytest.fixture(scope="module")
def made() -> Iterator[dict[Key, Artifact]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guards, "RANGE_ROWS", MOST)
        yield made_exactly(SCHEMA, TABLES)


def drawing_of(made: dict[Key, Artifact], table: str, folder: Path, scale: float = 1.0) -> RangeDrawing:
    models = TableModels.of(SCHEMA, SCHEMA.table(table), made, scale)
    above = {} if table == "parent" else {"parent": SampledTable(made["sample", "parent"])}
    drawing = RangeDrawing(models, 0, above, PartFiles(folder), pieces_of(models, 0, above))
    assert len(drawing.pieces) > 1
    return drawing


def test_items_are_made_ahead_and_errors_come_in_their_place():
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(4):
            made.append(number)
            yield number
        raise ValueError("the fifth")

    found = ahead(items())
    for number in range(4):
        assert next(found) == number
        wait_for("the next one is made", lambda: len(made) >= min(number + 2, 4), 10)  # noqa: B023 - called here
    with pytest.raises(ValueError, match="the fifth"):
        next(found)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_ranges_have_the_planned_rows_and_keys_that_are_nowhere_else(made):
    parent, child = (SampledTable(made["sample", name]) for name in ("parent", "child"))
    assert sum(parent.rows) == 1500
    assert max(parent.rows) <= MOST
    assert parent.whole().table.column("id").to_pylist() == list(range(1, 1501))
    rows = child.whole().table
    assert rows.column("id").to_pylist() == list(range(1, rows.num_rows + 1))
    assert rows.num_rows == pytest.approx(TABLES["child"].num_rows, abs=1)
    for number, owners in enumerate(child.owners):
        above = set(parent.part(owners).table.column("id").to_pylist())
        assert above.issuperset(child.part(number).table.column("parent_id").to_pylist())


def _draw(drawing: RangeDrawing, largest_file: int | None) -> None:
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    try:
        list(side_by_side(drawing, range(len(drawing.pieces)), 2))
    except ReleaseError as error:
        (drawing.parts.folder / "error").write_text(str(error))


def test_a_killed_run_resumes_at_the_missing_files(made, tmp_path: Path):
    whole = drawing_of(made, "child", tmp_path / "whole")
    expected = list(side_by_side(whole, range(len(whole.pieces)), 1))
    folder = tmp_path / "killed"
    drawing = drawing_of(made, "child", folder)
    killed_when(lambda: len(list(folder.glob("*.bin"))) >= 2, _draw, drawing, None)
    kept = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.bin")}
    (folder / min(kept)).write_bytes(b"half")  # as if the power had gone
    del kept[min(kept)]
    assert list(side_by_side(drawing, range(len(drawing.pieces)), 2)) == expected
    assert files(folder).keys() - files(tmp_path / "whole").keys() <= {
        path.name for path in folder.iterdir() if path.suffix != ".bin"
    }
    assert {name: content for name, content in files(folder).items() if name.endswith(".bin")} == files(
        tmp_path / "whole"
    )
    assert all((folder / name).stat().st_mtime_ns == when for name, when in kept.items())


def test_a_full_disk_leaves_no_half_file_and_a_clear_message(made, tmp_path: Path):
    drawing = drawing_of(made, "child", tmp_path / "full")
    process = PROCESSES.Process(target=_draw, args=(drawing, 2000))
    process.start()
    process.join(300)
    assert "Make room, then run again" in (tmp_path / "full" / "error").read_text()
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["error"]


def test_a_part_that_is_missing_or_altered_is_refused(made, tmp_path: Path):
    drawing = drawing_of(made, "parent", tmp_path)
    listed = list(side_by_side(drawing, range(len(drawing.pieces)), 1))
    file = tmp_path / "00001.bin"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ReleaseError, match="does not match its checksum; delete it and run again"):
        drawing.parts.get(1, listed[1].digest)
    file.write_bytes((tmp_path / "00000.bin").read_bytes())  # whole, but another one
    with pytest.raises(ReleaseError, match="does not match its checksum"):
        drawing.parts.get(1, listed[1].digest)
    file.unlink()
    with pytest.raises(ReleaseError, match="missing; run again"):
        drawing.parts.get(1, listed[1].digest)


def _fails(item: int) -> int:
    if item == 2:
        raise ReleaseError("two is refused")
    return item


def _dies(item: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return item


def test_what_work_raises_is_raised_and_the_next_work_is_done():
    with pytest.raises(ReleaseError, match="two is refused"):
        list(side_by_side(_fails, range(8), 2))
    assert list(side_by_side(_fails, [0, 1], 2)) == [0, 1]
    with pytest.raises(Exception, match="ended before its work was done"):
        list(side_by_side(_dies, range(4), 2))
    assert list(side_by_side(abs, [-3, 2, -1], 2)) == [3, 2, 1]
    assert pa.cpu_count() > 0


def test_a_third_level_is_the_same_for_any_number_of_processes(tmp_path: Path):
    """A unit owns several of the rows that have children, and numbers of children are drawn by range of owners."""
    note = Table(
        "note",
        (integer("id"), integer("child_id"), category("k", 2)),
        ("id",),
        (owner_key("note", "child_id", "child", 4),),
    )
    child, rng = TABLES["child"]["id"].to_numpy(), np.random.default_rng(0)
    home = np.repeat(child, np.where(TABLES["child"]["parent_id"].to_numpy() % 2, 4, rng.integers(0, 2, len(child))))
    tables = {**TABLES, "note": rows_of(note, id=np.arange(len(home)), child_id=home, k=texts(home % 2))}
    schema = replace(SCHEMA, tables=(*SCHEMA.tables, note))
    made = made_exactly(schema, tables)
    models = TableModels.of(schema, note, made, 1.0)
    found = []
    for workers in (1, 2):
        above = {"child": SampledTable(made["sample", "child"])}
        drawing = RangeDrawing(models, 0, above, PartFiles(tmp_path / str(workers)), pieces_of(models, 0, above))
        listed = list(side_by_side(drawing, range(len(drawing.pieces)), workers))
        found.append((listed, files(tmp_path / str(workers))))
    assert len({piece.owners for piece in drawing.pieces}) > 3
    assert found[0] == found[1]
    in_reverse = RangeDrawing(models, 0, drawing.samples, PartFiles(tmp_path / "one"), drawing.pieces)
    backwards = {number: in_reverse(number) for number in reversed(range(len(drawing.pieces)))}
    assert [backwards[number] for number in range(len(drawing.pieces))] == found[0][0]
