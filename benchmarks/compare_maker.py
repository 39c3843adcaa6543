"""Make synthetic databases with the code of one checkout, for `compare`; started as a script, one process per state.

PYTHONPATH=CHECKOUT python -P compare_maker.py     reads a request per line (JSON), answers with a line each

A request is {"spec", "epsilon", "delta", "seed", "synthesizer", "off", "out"}: a spec's file, the budget, the seed of
noise and of sampling, names of `mechanisms` to leave out, and the folder for the tables (one Arrow file each). The
answer is {"seconds", "peak_mb"}, or {"error"}.

Each run is a fork of a process that has imported the libraries and read the rows: it costs no start, no run is warm
from another one, and its peak memory is its own. Steps run up to the samples: nothing is fitted for a report, validated
or published, no ledger is kept, and a run's noise is seeded and the same in all states of the code.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module
from inspect import signature
from pathlib import Path
from pkgutil import walk_packages
from time import process_time
from typing import Any

_UP_TO_SAMPLES = ("count", "profile", "model", "fanout", "sample")
_PACKAGES = (
    *("estimators", "marginals", "units", "profiles", "links", "groups", "columns", "sampling", "synthesizers"),
    *("measure", "models", "estimate"),  # in earlier code
    *("engines.memory", "privacy"),
)
_LIBRARIES = ("duckdb", "scipy.optimize", "scipy.sparse.csgraph", "scipy.special", "scipy.stats", "charset_normalizer")
_SAID = 2000  # characters of a traceback that are kept


class PairedNoise:
    """Seeded noise that belongs to the site it is added at, not to the order of the run.

    Where a mechanism is left out, all other measurements keep the noise they had. The noise itself is that of the
    checkout's tests: the methods of a noise source are its.
    """

    secure = False

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        from tests.helpers.noise import SeededNoise

        def drawn(site: str, *given: Any, **named: Any) -> Any:
            self._calls[site] += 1
            own = f"{self._seed}\x1f{site}\x1f{self._calls[site]}".encode()
            source = SeededNoise(int.from_bytes(blake2b(own, digest_size=8).digest(), "little"))
            return getattr(source, name)(site, *given, **named)

        return drawn


def sample_tables(
    spec: Any, rows: Mapping[str, Any], epsilon: float, delta: float, seed: int, synthesizer: str
) -> dict[str, Any]:
    """Run a plan on rows that are in memory, up to its samples; return the tables of these by name."""
    from privbench_core.engines.memory import PrivateDatabase
    from privbench_core.pipeline import plan_for
    from privbench_core.privacy.filter import PrivacyFilter
    from privbench_core.privacy.session import PrivateSession
    from privbench_core.synthesizers.artifact import Artifact
    from privbench_core.synthesizers.contract import StepContext
    from privbench_core.synthesizers.steps.sampled import SampledTable

    plan = plan_for(spec, epsilon, delta=delta, synthesizer=synthesizer)
    database = PrivateDatabase(spec.schema, rows, bytes(16))  # the secret decides which rows are kept
    public = {table.name: rows[table.name] for table in spec.schema.tables if table.public}
    noise: Any = PairedNoise(seed)
    left: dict[Any, Any] = {}
    for step in plan.steps:
        if step.kind.value not in _UP_TO_SAMPLES:
            continue
        account = PrivacyFilter(step.price, lambda _label, _price: None)
        session = PrivateSession(database, account, noise, "/".join(step.key)) if step.reads else None
        context = StepContext({key: left[key] for key in step.inputs}, session, public, seed, workers=1)
        left[step.key] = Artifact.from_bytes(step.run(context).to_bytes(), context.parts)
    made = {key[1]: SampledTable(artifact).whole_rows() for key, artifact in left.items() if key[0] == "sample"}
    return {name: table for name, table in made.items() if table is not None}


@lru_cache(maxsize=1)
def _source(file: str) -> tuple[Any, dict[str, Any]]:
    """A spec and its rows, as a run reads them."""
    from privbench_core.backends.integrity import check_rows
    from privbench_core.backends.registry import open_source
    from privbench_core.spec.load import load_spec

    spec = load_spec(Path(file))
    keyed = len(signature(open_source).parameters) > 1  # in code from before rows without a key had keyed numbers
    source = open_source(spec, b"") if keyed else open_source(spec)
    read = {table.name: source.read(table) for table in spec.schema.tables}
    return spec, check_rows(spec.schema, read, spec.orphans)


def _import_all() -> None:
    """Import in this process what a run may, so that no run pays for it."""
    for package in _PACKAGES:
        try:
            found = import_module(f"privbench_core.{package}")
        except ModuleNotFoundError:  # of another state of the code
            continue
        for module in walk_packages(getattr(found, "__path__", ()), f"{found.__name__}."):
            with suppress(ImportError):  # of packages that may not be there
                import_module(module.name)
    for name in ("privbench_core.pipeline", "tests.helpers.noise", *_LIBRARIES):
        with suppress(ImportError):
            import_module(name)


def _run(asked: Mapping[str, Any]) -> dict[str, float]:
    """Make the tables of one request; seconds are of processor time."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    if asked["off"]:
        from benchmarks.mechanisms import leave_out

        leave_out(asked["off"])
    spec, rows = _source(asked["spec"])
    before = process_time()
    delta = spec.delta if asked["delta"] is None else asked["delta"]
    made = sample_tables(spec, rows, asked["epsilon"], delta, asked["seed"], asked["synthesizer"])
    seconds = process_time() - before
    for name, table in made.items():
        with (
            pa.OSFile(str(Path(asked["out"]) / f"{name}.arrow"), "wb") as file,
            pa.ipc.new_file(file, table.schema) as to,
        ):
            to.write_table(table)
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    return {"seconds": seconds, "peak_mb": int(found.group(1)) / 1024 if found else float("nan")}


def _answer_in_fork(asked: Mapping[str, Any]) -> str:
    """Run a request in a fork of this process; return the line that it answers with."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer: dict[str, Any] = _run(asked)
        except BaseException:  # noqa: BLE001 - whatever it was, the other process is told, and this one ends here
            answer = {"error": traceback.format_exc()[-_SAID:]}
        with os.fdopen(writing, "w") as pipe:
            pipe.write(json.dumps(answer))
        os._exit(0)  # without the ends of what the parent had opened
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return said or json.dumps({"error": f"the run ended with status {os.waitstatus_to_exitcode(status)}"})


def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            _import_all()
            _source(asked["spec"])
            said = _answer_in_fork(asked)
        except Exception:  # noqa: BLE001 - a checkout that cannot read the spec says so, and the others go on
            said = json.dumps({"error": traceback.format_exc()[-_SAID:]})
        answers.write(said + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
