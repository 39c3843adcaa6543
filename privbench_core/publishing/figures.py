"""Published fidelity figures: distances from the source, measured under differential privacy, with their noise.

A distance cannot be negative, so pure noise looks like a distance of 0. A figure below twice its noise is therefore
shown as an upper bound only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

DEVIATIONS = 2.0
"""Standard deviations of noise in an interval, about 95% of a normal distribution."""


@dataclass(frozen=True)
class FidelityFigure:
    """A noisy distance of the released models from the source, as a share of its maximum.

    Attributes:
        table: The table.
        metric: Its name, such as "two-way TVD".
        value: The figure, in [0, 1]; 0 where noise made it negative.
        noise: Standard deviation of its noise.
        shuffled: The same distance for independent columns with the models' one-way marginals, with equal noise; None
            for metrics of single columns.
    """

    table: str
    metric: str
    value: float
    noise: float
    shuffled: float | None = None

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
        return cls(*where, value or 0.0, min(1.0, sigma / whole), shuffled)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> FidelityFigure:
        """Return the inverse of `to_dict`."""
        return cls(**{name: stored[name] for name in ("table", "metric", "value", "noise", "shuffled")})

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able, as steps store it."""
        return asdict(self)

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
            "text": str(self),
        }

    def __str__(self) -> str:
        """Return the figure with its noise, and the figure of shuffled columns.

        >>> str(FidelityFigure("person", "join TVD", 0.03, 0.002, 0.21))
        '0.030 ± 0.004, columns shuffled 0.210 ± 0.004'
        >>> str(FidelityFigure("person", "one-way TVD", 0.0, 0.02))
        'at most 0.040 (all noise)'
        """
        parts = [_with_noise(self.value, self.noise)]
        if self.shuffled is not None:
            parts.append(f"columns shuffled {_with_noise(self.shuffled, self.noise)}")
        return ", ".join(parts)


def fidelity_table(fidelity: Mapping[str, Any]) -> list[str]:
    """Return the lines of a Markdown table of a manifest's ``fidelity_paid_for``; none without figures."""
    rows = [
        f"| {table} | {figure['metric']} | {figure['text']} |"
        for table, figures in fidelity.items()
        for figure in figures
    ]
    return ["| table | distance | from the original |", "|---|---|---|", *rows] if rows else []


def _with_noise(value: float, noise: float) -> str:
    if value <= DEVIATIONS * noise:
        return f"at most {min(1.0, value + DEVIATIONS * noise):.3f} (all noise)"
    return f"{value:.3f} ± {DEVIATIONS * noise:.3f}"
