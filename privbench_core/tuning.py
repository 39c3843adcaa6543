"""Tuning: all numbers that the accuracy of a release depends on and that no argument fixes, in one frozen record.

Each field has its unit, its source (a paper, a bound, or a comparison that can be run again: ``benchmarks/README.md``,
*What mechanisms earn*), and the range in which figures do not change. What is fixed by an argument stands in the code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tuning:
    """Numbers that figures depend on; each comment says the unit, the source and the flat range."""

    size_share: float = 0.12
    """Share of a table's price for numbers of units by their number of rows, and as much for the number of rows.
    Source: against shares that followed what was released, on chain, seasons, hospital and diamond. Flat from .08 to
    .16: chain and seasons, 3 seeds, ε = .8 and 3.2."""

    early_share: float = 0.4
    """Share of a price for a look that says how the rest is best spent: at cells, one row of each unit, and at how
    columns follow the number of rows of a unit. Source: chosen by hand. Flat range not measured."""

    number_share: float = 0.01
    """Share of a pure price for the number of rows of a table whose units have one, which says whether to look for
    dependences. Source: chosen by hand. Flat range not measured."""

    truncation_bias: float = 0.1
    """How far rows that are not counted move a distribution, in total variation, beyond what is known of their units.
    Source: .1 against .05, chain at ε = 10,000, 2 seeds: numbers of children .29 of the error, all figures .86."""

    shape_error: float = 0.3
    """How far, relatively, true numbers of groups are from any smooth distribution of sizes. Source: distributions of
    real sizes. Flat range not measured."""


TUNING = Tuning()
