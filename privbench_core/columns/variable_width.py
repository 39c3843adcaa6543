"""Ordered cells of uneven width: a range that released counts have shown to be worth a closer look in places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.columns.equal_width import OrderedCodec
from privbench_core.columns.grid import Grid, Numbers

_FINEST = 2.0**-24
"""Width below which a cell of floats is not cut further, as a share of the numbers in it."""

_A_POINT = 2.0**-20
"""Width below which a cell of floats stands for one value, as a share of the numbers in it."""


@dataclass(frozen=True)
class VariableWidthCodec(OrderedCodec):
    """Interval cells that begin at the given numbers; made by `cut` and `VariableWidthCodec.joined`.

    Attributes:
        cuts: First number of each cell, ascending.
        end: Last number of the last cell.
        learned: Whether the range was learned, so that its ends are estimates.
    """

    cuts: tuple[int | float, ...]
    end: int | float
    learned: bool = False

    @property
    def open_ended(self) -> bool:
        """Whether the range was learned."""
        return self.learned

    @cached_property
    def starts(self) -> Numbers:
        """First number of each interval cell."""
        return np.array(self.cuts, np.float64) if self.grid.continuous else np.array(self.cuts, np.int64)

    @property
    def last(self) -> int | float:
        """Last number of the last interval cell."""
        return self.end

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description."""
        cuts = {"cuts": list(self.cuts), "end": self.end, **({"learned": True} if self.learned else {})}
        return {"codec": "cuts", **self.grid.to_dict(), "nullable": self.nullable, **cuts}

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> VariableWidthCodec:
        """Return the codec of a description: the inverse of `to_dict`."""
        cuts = (tuple(description["cuts"]), description["end"], description.get("learned", False))
        return cls(Grid.from_dict(description), description["nullable"], *cuts)

    def _draw(self, cells: Codes, rng: np.random.Generator) -> Numbers:
        drawn = super()._draw(cells, rng)
        if not self.grid.continuous:
            return drawn
        points = self._points[cells]
        return np.where(np.isnan(points), drawn, points)

    @cached_property
    def _points(self) -> NDArray[np.float64]:
        """The value that a narrow cell of floats stands for, NaN for wider cells, shape (ordered,).

        A cell that was cut this often is narrow because many rows share a value in it, and no count tells which of
        the floats between its ends it is; people write round ones.
        """
        narrow = _relative_widths(self) < _A_POINT
        pairs = zip(self.starts.tolist(), self.ends.tolist(), narrow.tolist(), strict=True)
        return np.array([roundest(first, final) if point else np.nan for first, final, point in pairs])


def values_in(codec: OrderedCodec) -> NDArray[np.float64]:
    """Return how many values each interval cell holds, as far as it may be cut, shape (ordered,).

    Grid points; for floats the number of finest cells, at least 1.
    """
    if codec.grid.continuous:
        return np.maximum(np.floor(_relative_widths(codec) / _FINEST), 1.0)
    return (codec.ends - codec.starts).view(np.uint64).astype(np.float64) + 1


def cut(codec: OrderedCodec, parts: Mapping[int, int]) -> VariableWidthCodec:
    """``codec`` with some cells cut into equal parts.

    Args:
        codec: Cells that partition a range.
        parts: Interval cell -> number of parts, at most `values_in` that cell.
    """
    cuts: list[int | float] = []
    for cell, (first, final) in enumerate(zip(codec.starts.tolist(), codec.ends.tolist(), strict=True)):
        number = parts.get(cell, 1)
        if codec.grid.continuous:
            inside = (first * (1 - i / number) + final * (i / number) for i in range(number))
            cuts += sorted({min(max(number, first), final) for number in inside})  # rounding may make some the same
        else:
            cuts += [first + i * (final - first + 1) // number for i in range(number)]
    return VariableWidthCodec(codec.grid, codec.nullable, tuple(cuts), codec.last, codec.open_ended)


def joined(codec: OrderedCodec, kept: NDArray[np.int64]) -> VariableWidthCodec:
    """``codec`` with only the ``kept`` cells beginning a cell; the others join the cell before them."""
    return VariableWidthCodec(
        codec.grid, codec.nullable, tuple(codec.starts[kept].tolist()), codec.last, codec.open_ended
    )


def roundest(low: float, high: float) -> float:
    """Return the number in [low, high] with the fewest decimals, ``low`` if rounding allows no other.

    >>> roundest(9.9899999, 9.9900001), roundest(-250.3, -199.0), roundest(-1.0, 2.0)
    (9.99, -200.0, 0.0)
    """
    if low <= 0 <= high:
        return 0.0
    first, final = Decimal(repr(low)), Decimal(repr(high))
    exponent = max(first.adjusted(), final.adjusted())
    while exponent >= first.adjusted() - 17:
        found = float(first.scaleb(-exponent).to_integral_value(ROUND_CEILING).scaleb(exponent))
        if low <= found <= high:
            return found
        exponent -= 1
    return low


def _relative_widths(codec: OrderedCodec) -> NDArray[np.float64]:
    """Width of each interval cell of floats as a share of the largest number in it; 0 for a single one.

    Zero has a cell of its own in every range that holds it, so all numbers of a cell have one sign.
    """
    first, final = np.asarray(codec.starts, np.float64), np.asarray(codec.ends, np.float64)
    largest = np.maximum(np.abs(first), np.abs(final))
    return np.asarray((final - first) / np.where(largest > 0, largest, 1.0))
