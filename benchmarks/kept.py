"""Runs of peers that are kept in ``benchmarks/peers.json``: minutes each, and they do not change when privbench does.

A run is known by its rows, method, budget and seed. Delete the file, or entries of it, to have them measured again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from benchmarks.measure import Codes

FILE = Path(__file__).with_name("peers.json")


@dataclass(frozen=True)
class PeerRun:
    """What is known of a run.

    Attributes:
        error: Of its rows; None if there were none.
        reached: The limit in seconds of processor time that it reached; None if it ended by itself.
    """

    error: float | None
    reached: float | None = None

    def settles(self, limit: float) -> bool:
        """Return whether a run with this limit need not be tried again."""
        return self.reached is None or self.reached >= limit


@dataclass(frozen=True)
class KeptRuns:
    """Runs on one table.

    Attributes:
        table: Its name, and what tells its codes from others under that name.
        path: The file.
    """

    table: str
    path: Path = FILE

    @classmethod
    def of(cls, name: str, codes: Codes, path: Path = FILE) -> KeptRuns:
        """Return the runs on a table with these codes."""
        digest = sha256(repr(codes.shape).encode() + codes.astype("<i8").tobytes()).hexdigest()[:8]
        return cls(f"{name} ({digest})", path)

    def get(self, method: str, epsilon: float, delta: float, seed: int) -> PeerRun | None:
        """Return the run, if it is kept."""
        kept = self._read().get(self.table, {}).get(_name(method, epsilon, delta, seed))
        return None if kept is None else PeerRun(kept.get("error"), kept.get("reached"))

    def keep(self, method: str, epsilon: float, delta: float, seed: int, run: PeerRun) -> None:
        """Write the run into the file, with today's date."""
        every = self._read()
        facts = {"error": run.error, "reached": run.reached, "measured": f"{datetime.now(UTC):%Y-%m-%d}"}
        of_table = every.setdefault(self.table, {})
        of_table[_name(method, epsilon, delta, seed)] = {
            name: value for name, value in facts.items() if value is not None
        }
        self.path.write_text(json.dumps(every, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def _read(self) -> dict[str, dict[str, dict[str, float]]]:
        kept: dict[str, dict[str, dict[str, float]]] = {}
        if self.path.exists():
            kept = json.loads(self.path.read_text(encoding="utf-8"))
        return kept


def _name(method: str, epsilon: float, delta: float, seed: int) -> str:
    return f"{method}, epsilon {epsilon:g}, delta {delta:g}, seed {seed}"
