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
    """How likely a date is of another code than the one drawn for it, per code and relative to that one."""

    alike_rows: int = 30
    """Rows of owners that are alike, about: among them rows are exchanged between owners."""

    least_share: float = 0.1
    """Share of a table's rows below which a standard deviation of their agreement with siblings is worth its price, and
    above which their lags are another thing than those of independent dates."""

    sibling_parts: int = 8
    """Parts of an ordered column, of about as many rows each: siblings in one of them count as the same. Source: chosen
    by hand. Flat range: not measured."""


TUNING = Tuning()
