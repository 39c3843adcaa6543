"""`make ui` ends all that it started, however it is ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from privbench_assets.definitions import project_root
from tests.helpers.servers import answers, free_port, wait_for

_INSTALLED = (".python", ".runtime", ".ui")  # what make looks at before it installs anything


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """All that `make ui` needs, with the environment that runs the tests as its own."""
    folder = tmp_path / "checkout"
    environment = folder / ".venv"
    environment.mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "dagster.yaml", "workspace.yaml"):
        shutil.copy(project_root() / name, folder)
    for entry in Path(sys.prefix).iterdir():
        if entry.name not in _INSTALLED:
            (environment / entry.name).symlink_to(entry)
    for name in _INSTALLED:
        (environment / name).touch()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "heard"),
    [
        pytest.param(lambda make: os.killpg(make, signal.SIGINT), signal.default_int_handler, id="Ctrl-C"),
        pytest.param(lambda make: os.kill(make, signal.SIGTERM), signal.default_int_handler, id="SIGTERM"),
        pytest.param(lambda make: os.kill(make, signal.SIGTERM), signal.SIG_IGN, id="SIGTERM in the background"),
    ],
)
def test_no_process_is_left(
    checkout: Path, town_spec: Path, end: Callable[[int], None], heard: signal.Handlers
) -> None:
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": str(project_root()), "PRIVBENCH_SPECS": str(town_spec)}
    # The processes that make starts have the other end of a pipe, which closes when the last of them has left.
    reader, writer = os.pipe()
    ours = signal.signal(signal.SIGINT, heard)
    make = subprocess.Popen(
        ["make", "ui", f"PORT={port}"],
        cwd=checkout,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=writer,
        process_group=0,
    )
    signal.signal(signal.SIGINT, ours)
    os.close(writer)
    os.set_blocking(reader, False)
    errors = b""

    def left() -> bool:
        nonlocal errors
        try:
            while part := os.read(reader, 4096):
                errors += part
        except BlockingIOError:
            return False
        return True

    try:
        wait_for("the user interface", lambda: answers(port) or left())
        assert not left(), errors.decode()[-3000:]
        end(make.pid)
        wait_for("the end of all processes", left, 120)
    finally:
        if make.poll() is None or not left():
            os.killpg(make.pid, signal.SIGKILL)
        make.wait()
        os.close(reader)
