"""The walkthrough of the documentation: its choices fit the draft, and all of its commands run."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url

from privbench_core.backends.postgres.temporary import temporary_postgres
from tests.helpers.drafts import call
from tests.helpers.postgres import new_database

PROJECT = Path(__file__).parents[2]
TEXT = (PROJECT / "docs" / "walkthrough.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"(?m)^    \$ (.+)$", TEXT)
URL = "postgresql://localhost/"


def choose(spec: Path) -> None:
    """Make the edits that the walkthrough shows as differences."""
    text = spec.read_text(encoding="utf-8")
    for old, new in re.findall(r"(?m)^-(\{.+)\n\+(.+)$", TEXT):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    spec.write_text(text, encoding="utf-8")


def test_the_choices_of_the_walkthrough_fit_its_draft(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_database(postgres, "walkthrough")
    runpy.run_path(str(PROJECT / "examples" / "shop" / "build.py"))["build_postgres"](url, 20)
    monkeypatch.chdir(tmp_path)
    (command,) = (each for each in COMMANDS if each.startswith("privbench init"))
    drafted = call(*(url if URL in part else part for part in shlex.split(command)[1:]))
    shown = TEXT.partition(f"$ {command}\n")[2].partition("\n\n")[0]
    assert [line.strip() for line in shown.splitlines()] == [line.strip() for line in drafted.stdout.splitlines()]
    choose(tmp_path / "spec.yaml")
    assert call("plan", "spec.yaml", "--epsilon", "3.2").exit_code == 0


@pytest.mark.slow
def test_the_commands_of_the_walkthrough_run(tmp_path: Path) -> None:
    script = tmp_path / "privbench"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m privbench_core "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    (tmp_path / "examples").symlink_to(PROJECT / "examples")
    with temporary_postgres() as server:
        where = make_url(server.url)
        path = [str(tmp_path), str(server.programs), str(Path(sys.executable).parent), os.environ["PATH"]]
        names = {"PGHOST": str(where.query["host"]), "PGPORT": str(where.query["port"]), "PGUSER": "postgres"}
        there = {**os.environ, **names, "PATH": os.pathsep.join(path), "PYTHONPATH": str(PROJECT)}
        for command in COMMANDS:
            local = re.sub(rf"{URL}(\w+)", lambda found: shlex.quote(_database(server.url, found[1])), command)
            done = subprocess.run(
                ["bash", "-c", local], cwd=tmp_path, env=there, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            if command.startswith("privbench init"):
                choose(tmp_path / "spec.yaml")


def _database(server: str, name: str) -> str:
    return make_url(server).set(database=name).render_as_string(hide_password=False)
