"""Runs of peers that are kept in ``benchmarks/peers.json``: minutes each, and they do not change when privbench does.

A run is known by its rows, method, budget and seed. Delete the file, or entries of it, to have them measured again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.measure import Codes, NotFinishedError

FILE = Path(__file__).with_name("peers.json")


@dataclass(frozen=True)
class PeerRun:
    """What is known of a run.

    Attributes:
        figures: Of its rows and its cost; none if there were no rows.
        reached: The limit in seconds of processor time that it reached; None if it ended by itself.
        packages: What made it.
        refused: Why it ended without rows, in its own words.
    """

    figures: Mapping[str, float] = field(default_factory=dict)
    reached: float | None = None
    packages: str = ""
    refused: str = ""

    def settles(self, limit: float) -> bool:
        """Return whether a run with this limit need not be tried again."""
        return self.reached is None or self.reached >= limit


@dataclass(frozen=True)
class KeptRuns:
    """Runs on one table, or on several of a database.

    Attributes:
        table: Its name, and what tells its codes from others under that name.
        path: The file.
    """

    table: str
    path: Path = FILE

    @classmethod
    def of(cls, name: str, *codes: Codes, path: Path = FILE) -> KeptRuns:
        """Return the runs on a table with these codes, or on columns of tables."""
        digest = sha256()
        for each in codes:
            digest.update(repr(each.shape).encode() + each.astype("<i8").tobytes())
        return cls(f"{name} ({digest.hexdigest()[:8]})", path)

    def get(self, method: str, epsilon: float, delta: float, seed: int) -> PeerRun | None:
        """Return the run, if it is kept."""
        kept = self._read().get(self.table, {}).get(_name(method, epsilon, delta, seed))
        if kept is None:
            return None
        facts = {name: kept[name] for name in ("reached", "packages", "refused") if name in kept}
        return PeerRun({name: kept[name] for name in kept if name not in {*facts, "measured"}}, **facts)

    def keep(self, method: str, epsilon: float, delta: float, seed: int, run: PeerRun) -> None:
        """Write the run into the file, with today's date."""
        every = self._read()
        facts = {"reached": run.reached, "packages": run.packages, "refused": run.refused}
        entry = {**run.figures, **{name: value for name, value in facts.items() if value}}
        every.setdefault(self.table, {})[_name(method, epsilon, delta, seed)] = {
            **entry,
            "measured": f"{datetime.now(UTC):%Y-%m-%d}",
        }
        self.path.write_text(json.dumps(every, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def settled(
        self, method: str, run: tuple[float, float, int], limit: float, made: Callable[[], PeerRun] | None
    ) -> PeerRun | None:
        """Return a run (ε, δ, seed) that is kept, or one that is ``made`` and kept; None where nothing can make it."""
        found = self.get(method, *run)
        if (found is not None and found.settles(limit)) or made is None:
            return found
        try:
            found = made()
        except NotFinishedError:
            found = PeerRun(reached=limit)
        self.keep(method, *run, found)
        return found

    def _read(self) -> dict[str, dict[str, dict[str, Any]]]:
        kept: dict[str, dict[str, dict[str, Any]]] = {}
        if self.path.exists():
            kept = json.loads(self.path.read_text(encoding="utf-8"))
        return kept


def _name(method: str, epsilon: float, delta: float, seed: int) -> str:
    return f"{method}, epsilon {epsilon:g}, delta {delta:g}, seed {seed}"
