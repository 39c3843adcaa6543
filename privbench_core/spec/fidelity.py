"""The ``fidelity`` part of a spec: when published figures are bad enough to warn, and whether they stop a bundle."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FidelityPolicy:
    """How the fidelity figures of a release are judged. It costs nothing to change.

    Attributes:
        block: Whether bad figures keep a bundle from being published; else they warn.
        accept_noise: Whether steps are bought of which released numbers show that they will be noise.
        one_way: Largest mean total variation distance of single columns. A quarter of the rows, as in an evaluation's
            "far" (`evaluation.verdict.DISTANCE`).
        to_shuffled: Largest distance of pairs and joins, relative to that of shuffled columns.
    """

    block: bool = False
    accept_noise: bool = False
    one_way: float = 0.25
    to_shuffled: float = 1.0
