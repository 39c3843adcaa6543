"""Tuning: all numbers that the accuracy of a release depends on and that no argument fixes, in one frozen record.

Each field has its unit, its source (a paper, a bound, or a comparison that can be run again: ``benchmarks/README.md``,
*What mechanisms earn*), and the range in which figures do not change. What is fixed by an argument stands in the code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Numbers that figures depend on; each comment says the unit, the source and the flat range."""

    other_code: float = 1e-3
    """How likely a date is of another code than the one drawn for it, per code and relative to that one. Source: models
    of codes place a row in a hundred before what it comes after, among dozens of codes. Flat range: not measured."""

    alike_rows: int = 30
    """Rows of owners that are alike, about, among which rows are first exchanged between owners. Source: without such
    owners at all, joined pairs of chain and hospital converge 6 to 9% worse. Flat range: not measured."""

    least_share: float = 0.1
    """Share of a table's rows below which the noise of their agreement with siblings has to be for it to be measured,
    and above which their lags have to differ from those of independent dates to be kept. Source: chosen by hand. Flat
    range: not measured."""

    own_lag_share: float = 0.05
    """Share of a table's price for how far dates are from others of their row. Source: chosen by hand. Flat range: .05
    to .1 on web_shop."""


TUNING = Tuning()
