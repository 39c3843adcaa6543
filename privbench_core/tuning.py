"""Tuning: all numbers that the accuracy of a release depends on and that no argument fixes, in one frozen record.

Each field has its unit, its source (a paper, a bound, or a comparison that can be run again: ``benchmarks/README.md``,
*What mechanisms earn*), and the range in which figures do not change. What is fixed by an argument stands in the code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Numbers that figures depend on; each comment says the unit, the source and the flat range."""

    degrees: float = 0.4
    """Share of a link's price for how many rows are linked to each. Source: chosen by hand. Flat range: not
    measured."""
    first_look: float = 0.1
    """Share of a price for what decides how the rest is spent, or is told by few numbers: which marginals across tables
    are measured, marginals of a row's owner, whether rows have owners, lags, agreement of siblings. Source: PrivPetal's
    1:1:8 for R-scores, sizes and marginals. Flat range: not measured."""
    most_noise: float = 0.1
    """Noise of a marginal across tables, as a share of its rows, beyond which its codes are merged or it is not
    measured. Source: chosen by hand. Flat range: not measured."""
    truncation_bias: float = 0.05
    """How far rows that are not counted may move a distribution, as a share of them. Source: chosen by hand. Flat
    range: not measured."""


TUNING = Tuning()
