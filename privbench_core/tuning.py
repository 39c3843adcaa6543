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
    """Share of a link's price for how many rows are linked to each. Source: about half of the others' joints depend on
    it, and its noise is small; Alimohammadi et al. take 0.3. Flat from 0.2 to 0.5."""
    first_look: float = 0.1
    """Share of a price for what decides how the rest is spent, or is told by one number: R-scores and marginals of
    classes (PrivPetal, 1:1:8), which marginal to measure next (Algorithm 2 of Alimohammadi et al.), whether rows have
    owners, lags, agreement of siblings. Flat from 0.07 to 0.14."""
    most_noise: float = 0.1
    """Noise of a marginal across tables, as a share of its rows, beyond which its codes are merged or it is not
    measured. Source: chosen by hand. Flat range: not measured."""
    truncation_bias: float = 0.05
    """How far rows that are not counted may move a distribution, as a share of them. Source: chosen by hand. Flat
    range: not measured."""


TUNING = Tuning()
