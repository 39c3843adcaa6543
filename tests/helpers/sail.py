"""A server that speaks Spark Connect, without a JVM: what tests take for a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import pytest

_SERVER = """
from time import sleep
from pysail.spark import SparkConnectServer
server = SparkConnectServer("127.0.0.1", 0)
server.start(background=True)
print(server.listening_address[1], flush=True)
while True:
    sleep(60)
"""


class Sail:
    """A server in a process of its own; tests that need one are skipped where it is not installed.

    Args:
        folder: Where it keeps the copies that sessions make.
    """

    def __init__(self, folder: Path) -> None:
        missing = [name for name in ("pysail", "pyspark") if find_spec(name) is None]
        if missing:
            pytest.skip(f"{' and '.join(missing)} not installed: pip install -e '.[dev]'")
        self.folder = folder
        settings = {"SAIL_EXECUTION__CHECKPOINT__PATH": folder.as_uri(), "RUST_LOG": "error"}
        arguments = [sys.executable, "-c", _SERVER]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=os.environ | settings)
        assert self._process.stdout is not None
        self.url = f"sc://127.0.0.1:{int(self._process.stdout.readline())}"

    def freeze(self) -> None:
        """Let it answer nothing from now on, without closing its connections."""
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def copies(self) -> list[Path]:
        """The files of copies that sessions have made and not deleted."""
        return [path for path in self.folder.rglob("*") if path.is_file()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
