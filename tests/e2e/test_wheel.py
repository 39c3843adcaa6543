"""The wheel alone is enough: installed into an empty environment, it runs the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


def run(*command: object, cwd: Path) -> str:
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it may name this checkout
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=alone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_a_built_wheel_runs_the_demo_in_an_empty_environment(tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, PROJECT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("privbench-*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "empty", cwd=tmp_path)
    there = tmp_path / "empty" / "bin"
    run(there / "python", "-m", "pip", "install", "--constraint", PROJECT / "constraints.txt", wheel, cwd=tmp_path)
    found = run(there / "privbench", "demo", "--dir", tmp_path / "demo", cwd=tmp_path)
    assert "of the lifetime budget" in found
    assert (tmp_path / "demo" / "bundle" / "MANIFEST.json").is_file()
    run(there / "privbench", "demo", "--example", "shop", "--dir", tmp_path / "shop", cwd=tmp_path)
    assert (tmp_path / "shop" / "bundle" / "MANIFEST.json").is_file()
    where = run(there / "python", "-c", "import privbench_core; print(privbench_core.__file__)", cwd=tmp_path)
    assert str(tmp_path) in where
