"""Published fidelity figures: distances to the source, measured under differential privacy, each with its noise.

A distance cannot be negative, so noise alone looks like a distance of 0. A figure below twice its noise is therefore
never given as a number of its own, but as the most that it may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_SURE = 2.0
"""Standard deviations of the noise that a figure is given with: it is that close in about 95 of 100 cases."""


@dataclass(frozen=True)
class FidelityFigure:
    """A noisy distance of the released models from the source, as a share of the largest it can be.

    Attributes:
        table: Whose rows.
        metric: What was measured, "two-way TVD" for instance.
        value: The figure, in [0, 1]; 0 where noise made it negative.
        noise: Standard deviation of its noise.
        shuffled: The same distance for independent columns with the models' one-way marginals, as noisy; None where a
            metric is about single columns.
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
        """Return noisy distances (the models', independent columns') as shares of ``whole``, the largest but for noise.

        Args:
            where: Table and metric.
            distances: As released; the second is None where there is none.
            sigma: Standard deviation of the noise on each.
            whole: What stands for 1.
        """
        value, shuffled = (None if d is None else min(1.0, max(0.0, d / whole)) for d in distances)
        return cls(*where, value or 0.0, min(1.0, sigma / whole), shuffled)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> FidelityFigure:
        """Return the inverse of `to_dict`."""
        return cls(**{name: stored[name] for name in ("table", "metric", "value", "noise", "shuffled")})

    def to_dict(self) -> dict[str, Any]:
        """Return it as a step stores it."""
        return asdict(self)

    @property
    def receipt(self) -> dict[str, Any]:
        """What a manifest says of it; ``value`` is None where the measurement is all noise."""
        significant = self.value > _SURE * self.noise
        return {
            "metric": self.metric,
            "value": round(self.value, 4) if significant else None,
            "plus_minus": round(min(1.0, _SURE * self.noise), 4),
            "at_most": round(min(1.0, self.value + _SURE * self.noise), 4),
            "columns_shuffled": None if self.shuffled is None else round(self.shuffled, 4),
            "text": str(self),
        }

    def __str__(self) -> str:
        """Return the figure with its noise, and beside it what shuffled columns would have.

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
    if value <= _SURE * noise:
        return f"at most {min(1.0, value + _SURE * noise):.3f} (all noise)"
    return f"{value:.3f} ± {_SURE * noise:.3f}"
