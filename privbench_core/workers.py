"""Work spread over processes: as many as there are processors, with results that do not depend on how many.

Plain child processes of this interpreter take pickled work from a pipe. Nothing is forked beside threads, and the main
module is not imported again: a notebook or a script without a guard may call this. A child whose parent is gone reads
the end of its pipe and leaves. Children stay for the next work, because importing takes longer than most of it.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue
from typing import Any, BinaryIO, TypeVar

from privbench_core.errors import InternalError

T = TypeVar("T")
R = TypeVar("R")
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from privbench_core.workers import serve; serve()"


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(work: Callable[[T], R], items: Sequence[T], workers: int | None = None) -> Iterator[R]:
    """Yield ``work(item)`` for each item, in order.

    Args:
        work: Picklable, as are items and results; its result depends on the item alone.
        items: What to work on; they are begun in this order.
        workers: Most processes at a time, `processors` if None; one works in this process.

    Raises:
        InternalError: A process ended before it answered (killed, out of memory).
        Exception: What ``work`` raised; items that are not begun by then are left.
    """
    number = min(workers or processors(), len(items))
    if number <= 1:
        yield from map(work, items)
        return
    pickled = pickle.dumps(work)
    idle: SimpleQueue[_Child] = SimpleQueue()
    children = [_take_child() for _ in range(number)]

    def on_one(item: T) -> R:
        child = idle.get()
        try:
            result: R = child.ask(item)
        finally:
            idle.put(child)
        return result

    try:
        for child in children:
            child.send("work", pickled)
            idle.put(child)
        with ThreadPoolExecutor(number) as pool:
            try:
                yield from pool.map(on_one, items)
            except BaseException:
                for child in children:
                    child.end()
                raise
    finally:
        _WAITING.extend(child for child in children if child.process.poll() is None)


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the same items, each made by a thread while the one before is worked on."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_taken, items)
        while found := waiting.result():
            waiting = pool.submit(_taken, items)
            yield from found


def _taken(items: Iterator[T]) -> list[T]:
    """The next item; none at the end."""
    return list(islice(items, 1))


def serve() -> None:
    """Answer on standard output what is asked on standard input, until that ends: what a child process runs."""
    import pyarrow as pa

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    pa.set_cpu_count(1)  # the other processors have work of their own
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    work: Callable[[Any], Any] = repr  # until it gets some
    while (found := _received(asked)) is not None:
        kind, content = found
        if kind == "work":
            work = pickle.loads(content)  # noqa: S301 - from our own parent
            continue
        try:
            answer = True, work(pickle.loads(content))  # noqa: S301
        except Exception as error:  # noqa: BLE001 - the parent raises it
            answer = False, error
        with suppress(BrokenPipeError):
            _send(answers, answer)


class _Child:
    """A process that works."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, "-c", _START, json.dumps(sys.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def send(self, kind: str, content: bytes) -> None:
        """Send it work, or an item to do it on."""
        assert self.process.stdin is not None  # noqa: S101 - a pipe
        with suppress(BrokenPipeError):  # then it does not answer either
            _send(self.process.stdin, (kind, content))

    def ask(self, item: object) -> Any:
        """Return its result for an item, or raise what it raised."""
        self.send("item", pickle.dumps(item))
        assert self.process.stdout is not None  # noqa: S101 - a pipe
        try:
            found = _received(self.process.stdout)
        except (OSError, ValueError, pickle.UnpicklingError):
            found = None
        if found is None:
            raise InternalError("a process ended before its work was done (was it killed, or is memory short?)")
        well, result = found
        if not well:
            raise result
        return result

    def end(self) -> None:
        """Stop it, whatever it does."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


_WAITING: deque[_Child] = deque()
"""Processes that wait for the next work; a deque because threads share it."""


def _take_child() -> _Child:
    while _WAITING:
        with suppress(IndexError):  # another thread has taken the last one
            child = _WAITING.pop()
            if child.process.poll() is None:
                return child
    return _Child()


@atexit.register
def _end_children() -> None:
    while _WAITING:
        _WAITING.pop().end()


def _send(pipe: BinaryIO | Any, message: object) -> None:
    pickle.dump(message, pipe, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def _received(pipe: BinaryIO | Any) -> Any:
    """Return the next message; None at the end."""
    try:
        return pickle.load(pipe)  # noqa: S301 - from our own parent or child
    except EOFError:
        return None
