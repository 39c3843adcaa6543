"""docs/library.md, run as it stands beside the example."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from privbench_core.backends.folder.read import FolderSource
from privbench_core.commands.demo import find_example
from privbench_core.privacy.budget import Budget, Measure, Price
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.noise import OpenDPNoise
from privbench_core.privacy.relations import PrivateDatabase
from privbench_core.privacy.session import open_session
from privbench_core.synthesizers.contract import StepContext

DOCUMENT = Path(__file__).parents[2] / "docs" / "library.md"


def test_the_document_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in find_example().glob("*.*"):
        shutil.copyfile(file, tmp_path / file.name)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"__name__": "document"}
    for block in blocks:
        exec(compile(block, str(DOCUMENT), "exec"), names)
    assert 0.1 <= names["account"].balance.spent <= 0.8
    assert names["result"].paid > 0
    assert len(names["persons"]) == pytest.approx(136_477, rel=0.05)
    assert names["loaded"].rows["person"] == len(names["persons"])
    assert (tmp_path / "report" / "report.html").exists()
    assert {"household", "person"} <= {
        key.path[2] for key in names["defs"].resolve_all_asset_keys() if len(key.path) > 2
    }
    rows = _as_a_step(tmp_path, names)
    assert rows == pytest.approx(48_769, rel=0.01)


def _as_a_step(folder: Path, names: dict[str, Any]) -> float:
    schema, price = names["spec"].schema, Price(Measure.ZCDP, 0.1)
    tables = {table.name: FolderSource(folder).read(table) for table in schema.tables}
    ledger = Ledger(":memory:", schema.name, "household", Budget(10, 1e-9))
    database = PrivateDatabase(schema, tables, bytes(16))
    session, _ = open_session(database, ledger, OpenDPNoise(), release="rows", step="rows", run="document", price=price)
    return float(names["count_households"](StepContext({}, session, {}, 0)).data["rows"])
