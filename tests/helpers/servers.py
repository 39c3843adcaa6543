"""Dagster's servers as processes of their own, on the loopback, and what is asked of them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Two runs of a backfill took nearly 300 seconds where ten other programs shared two processors.
_PATIENCE = 1200.0


@contextmanager
def running(environment: Mapping[str, str], log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of a deployment (``python -m`` and the arguments), stopped at the end."""
    with log.open("wb") as file:
        command = [sys.executable, "-W", "ignore", "-m", *arguments]
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT, cwd=log.parent)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def code_server(environment: Mapping[str, str], logs: Path) -> Iterator[Path]:
    """The definitions in a process of their own; yields the workspace file that says where it listens.

    A code server that a webserver, or a daemon, has started for itself stops when it has not heard of it for 45 s, or
    20 s. They are silent for as long where many programs share a processor.
    """
    with TemporaryDirectory(prefix="code-") as folder:  # the name of a socket must be short
        place, workspace = Path(folder, "socket"), logs / "workspace.yaml"
        workspace.write_text(f"load_from: [{{grpc_server: {{socket: {place}, location_name: privbench}}}}]\n")
        served = ("--socket", str(place), "--module-name", "privbench_assets.definitions")
        with running(environment, logs / "code.log", "dagster", "api", "grpc", *served):
            wait_for("the code server", place.exists)
            yield workspace


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(port: int) -> bool:
    """Whether a webserver is there."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5) as answer:
            return "dagster_version" in json.load(answer)
    except OSError:
        return False


def graphql(port: int, query: str, variables: Mapping[str, Any]) -> Any:
    """What the user interface would be told: the data of the answer."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["data"]


def wait_for(what: str, happened: Callable[[], Any], seconds: float = _PATIENCE, *, every: float = 0.5) -> Any:
    """What ``happened``, asked ``every`` so many seconds, returns once it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = happened()
        if found:
            return found
        time.sleep(every)
    raise AssertionError(f"{what}: not within {seconds} s")
