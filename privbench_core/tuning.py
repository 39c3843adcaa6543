"""Tuning: all numbers that the accuracy of a release depends on and that no argument fixes, in one frozen record.

Each field has its unit, its source (a paper, a bound, or a comparison that can be run again: ``benchmarks/README.md``,
*What mechanisms earn*), and the range in which figures do not change. What is fixed by an argument stands in the code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Numbers that figures depend on; each comment says the unit, the source and the flat range."""

    score_share: float = 0.1
    sign_share: float = 0.2
    clear: float = 0.05
    strong: float = 0.5
    floor: float = 0.02
    accident: float = 0.01
    triple_share: float = 0.02
    split_noise: float = 0.0005


TUNING = Tuning()
