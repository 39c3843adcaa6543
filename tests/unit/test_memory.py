"""What is said when memory runs out in the middle of a run: where, and what was paid; never how much was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import privbench_core
from privbench_core.cli import app
from privbench_core.errors import OutOfMemoryError
from privbench_core.spec.load import load_spec
from tests.helpers.fake_synthesizer import FakeSynthesizer


def test_lack_of_memory_names_the_step_and_what_was_paid(town_spec: Path, fake: FakeSynthesizer) -> None:
    out = town_spec.parent / "bundle"
    fake.broken["model", "person"] = MemoryError("Unable to allocate 6.73 TiB for an array with shape (925186201,)")
    result = CliRunner().invoke(app, ["run", str(town_spec), "--epsilon", "0.8", "--out", str(out)])
    assert result.exit_code == 1
    said = " ".join(result.stderr.split())
    assert said.startswith("privbench: model/person: not enough memory for this step. Count rows on disk (engine: duck")
    assert "Releases so far are kept: 3 steps of this run (" in said
    assert "model/person had begun: its price counts as spent (" in said
    assert "925186201" not in said, "what was asked for may be as large as a private table"
    fake.broken = {("sample", "person"): MemoryError()}
    with pytest.raises(
        OutOfMemoryError, match=r"sample/person: not enough memory .* fewer workers, at a smaller scale"
    ):
        privbench_core.run(load_spec(town_spec), 0.8, out=out)
