"""docs/quickstart.ipynb, cell by cell. It holds plain Python only, so it needs no kernel to run."""

from __future__ import annotations

import ast
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.example import part_of_the_example
from tests.helpers.noise import seed_noise

NOTEBOOK = Path(__file__).parents[2] / "docs" / "quickstart.ipynb"


@pytest.fixture
def cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return found


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell and return the value of its last line where that is an expression, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names) if last else None


def test_the_notebook_is_stored_without_outputs(cells: list[dict[str, Any]]) -> None:
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert len({cell["id"] for cell in cells}) == len(cells)


def test_the_notebook_runs(
    cells: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed_noise(monkeypatch)  # else the bounds below are 3.6 and 3.9 standard deviations away
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    example = tmp_path / "example"
    example.mkdir()
    part_of_the_example(example, 8_000)
    monkeypatch.setattr("privbench_core.commands.demo.find_example", lambda: example)
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [run_cell("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"]
    printed = capsys.readouterr().out
    assert names["folder"].parent == tmp_path
    assert "unit household; ε=0.2, 0.8, 3.2 at δ=1e-09, lifetime ε=20" in repr(shown[1])
    assert "rows; ε=0.8, δ=1e-09>" in printed
    assert "paid: 0" in printed
    assert names["close"]["bundle"].to_numpy() == pytest.approx(names["close"]["source"].to_numpy(), rel=0.35)
    assert names["made_share"] == pytest.approx(names["true_share"], abs=0.05)
    assert shown[-1]["household"] == pytest.approx(8_000, rel=0.01)
