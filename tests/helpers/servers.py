"""Dagster's servers as processes of their own, on the loopback, and what is asked of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
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


def wait_for(what: str, happened: Callable[[], Any], seconds: float = _PATIENCE) -> Any:
    """What ``happened`` returns once it is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = happened()
        if found:
            return found
        time.sleep(0.5)
    raise AssertionError(f"{what}: not within {seconds} s")
