"""Published fidelity figures: distances from the source, measured under differential privacy, with their noise.

A distance cannot be negative, so pure noise looks like a distance of 0. A figure below twice its noise is therefore
shown as an upper bound only. What figures mean is said by `publishing.verdicts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from privbench_core.guards import TINY

DEVIATIONS = 2.0
"""Standard deviations of noise in an interval, about 95% of a normal distribution."""
ONE_WAY, TWO_WAY, JOIN, SIZE = "one-way TVD", "two-way TVD", "join TVD", "size, relative"


@dataclass(frozen=True)
class FidelityFigure:
    """A noisy distance of the released models from the source, as a share of its maximum.

    Attributes:
        table: The table.
        metric: Its name, such as "two-way TVD".
        value: The figure, in [0, 1]; 0 where noise made it negative.
        noise: Standard deviation of its noise.
        shuffled: The same distance for the source with its columns shuffled; None for metrics of single columns.
        shuffled_noise: Standard deviation of the noise of that.
    """

    table: str
    metric: str
    value: float
    noise: float
    shuffled: float | None = None
    shuffled_noise: float = 0.0

    @classmethod
    def of(
        cls, where: tuple[str, str], distances: tuple[float, float | None], sigma: float, whole: float
    ) -> FidelityFigure:
        """Return noisy distances (the models', independent columns') as shares of ``whole``, the maximum without noise.

        Args:
            where: Table and metric.
            distances: As released; the second may be None.
            sigma: Standard deviation of the noise on each.
            whole: The distance that becomes 1.
        """
        value, shuffled = (None if d is None else min(1.0, max(0.0, d / whole)) for d in distances)
        noise = min(1.0, sigma / whole)
        return cls(*where, value or 0.0, noise, shuffled, 0.0 if shuffled is None else noise)

    def with_columns_off(self, *distances: float) -> FidelityFigure:
        """Return the figure where ``shuffled`` was measured with columns that are themselves so far off.

        Errors that have nothing to do with each other add up in squares, so the columns' are taken off in squares. What
        is left is the less certain the less it is.

        >>> str(FidelityFigure("person", "join TVD", 0.3, 0.01, 0.5, 0.01).with_columns_off(0.3, 0.0))
        '0.300 ± 0.020, columns shuffled 0.400 ± 0.025'
        """
        if self.shuffled is None:
            return self
        left = math.sqrt(max(0.0, self.shuffled**2 - sum(d * d for d in distances)))
        steep = self.shuffled / max(left, self.shuffled_noise, TINY)
        return replace(self, shuffled=left, shuffled_noise=min(1.0, self.shuffled_noise * max(1.0, steep)))

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> FidelityFigure:
        """Return the inverse of `to_dict`."""
        return cls(**{field.name: stored[field.name] for field in fields(cls)})

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able, as steps store it."""
        return asdict(self)

    @property
    def numbers(self) -> dict[str, float]:
        """The figure, half of its interval, and that of shuffled columns, by name: to be plotted over releases."""
        found = {"": self.value, ", ±": DEVIATIONS * self.noise, ", columns shuffled": self.shuffled}
        return {self.metric + what: round(number, 4) for what, number in found.items() if number is not None}

    @property
    def receipt(self) -> dict[str, Any]:
        """The figure for a manifest; ``value`` is None if it is not significant."""
        significant = self.value > DEVIATIONS * self.noise
        return {
            "metric": self.metric,
            "value": round(self.value, 4) if significant else None,
            "plus_minus": round(min(1.0, DEVIATIONS * self.noise), 4),
            "at_most": round(min(1.0, self.value + DEVIATIONS * self.noise), 4),
            "columns_shuffled": None if self.shuffled is None else round(self.shuffled, 4),
            "shuffled_plus_minus": round(min(1.0, DEVIATIONS * self.shuffled_noise), 4),
            "text": str(self),
        }

    def __str__(self) -> str:
        """Return the figure with its noise, and the figure of shuffled columns.

        >>> str(FidelityFigure("person", "join TVD", 0.03, 0.002, 0.21, 0.002))
        '0.030 ± 0.004, columns shuffled 0.210 ± 0.004'
        >>> str(FidelityFigure("person", "one-way TVD", 0.0, 0.02))
        'at most 0.040 (all noise)'
        """
        parts = [_with_noise(self.value, self.noise)]
        if self.shuffled is not None:
            parts.append(f"columns shuffled {_with_noise(self.shuffled, self.shuffled_noise)}")
        return ", ".join(parts)


def _with_noise(value: float, noise: float) -> str:
    if value <= DEVIATIONS * noise:
        return f"at most {min(1.0, value + DEVIATIONS * noise):.3f} (all noise)"
    return f"{value:.3f} ± {DEVIATIONS * noise:.3f}"
