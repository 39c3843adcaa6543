"""Small plots as inline SVG: marginals, fanout, a heat map of a join, Q-errors.

They show private counts. Text stays text in the SVG, so that pages are small and can be searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.evaluate.encode import Coded
from privbench_core.report.comparison import KeyFigures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCE, SYNTHETIC = "#9aa5b1", "#c2410c"
_BARS = 60  # more cells than this are grouped (ordered ones) or left out (the rarest of the others)
_ACROSS = 4
_TITLE = 24  # characters


def marginals(true: Coded, synthetic: Coded, distances: dict[str, float]) -> str:
    """One-way marginals of every attribute: the source filled, the synthetic table as a line."""
    count = len(true.names)
    figure, axes = _grid(count)
    for position, (name, axis) in enumerate(zip(true.names, axes, strict=False)):
        size = true.sizes[position]
        shares = [_shares(coded.codes[:, position], size) for coded in (true, synthetic)]
        source, other = _condensed(*shares, ordered=true.ordered[position])
        _step(axis, source, other)
        axis.set_title(f"{_short(name)}  {distances[name]:.3f}", fontsize=8, loc="left")
    return _svg(figure)


def fanout(true: NDArray[np.int64], synthetic: NDArray[np.int64]) -> str:
    """Distribution of children per parent."""
    size = int(max(true.max(initial=0), synthetic.max(initial=0))) + 1
    figure, axes = _grid(1, height=2.0)
    _step(axes[0], _shares(true, size), _shares(synthetic, size), ticks=size <= _BARS)
    axes[0].set_title("children per parent", fontsize=8, loc="left")
    return _svg(figure)


def heat_map(key: KeyFigures) -> str:
    """Distance of each pair (parent attribute down, child attribute across)."""
    parents, children = (list(dict.fromkeys(pair[side] for pair in key.pairs)) for side in (0, 1))
    values = np.array([[key.pairs[p, c] for c in children] for p in parents])
    figure = _figure(1.6 + 0.55 * len(children), 1.0 + 0.3 * len(parents))
    axis = figure.add_subplot()
    top = max(0.2, float(values.max()))
    axis.pcolormesh(values, cmap="Oranges", vmin=0, vmax=top, edgecolors="white", linewidth=1)
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value > 0.7 * top else "black"
        axis.text(column + 0.5, row + 0.5, f"{value:.2f}", ha="center", va="center", fontsize=6, color=colour)
    axis.set_xticks(np.arange(len(children)) + 0.5, [_short(c) for c in children], fontsize=7, rotation=40, ha="right")
    axis.set_yticks(np.arange(len(parents)) + 0.5, [_short(p) for p in parents], fontsize=7)
    axis.invert_yaxis()
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return _svg(figure)


def q_error_curve(errors: NDArray[np.float64]) -> str:
    """Q-errors in ascending order, against the share of queries at most as bad."""
    figure = _figure(4.2, 2.2)
    axis = figure.add_subplot()
    axis.step(np.sort(errors), np.arange(1, len(errors) + 1) / len(errors), where="post", color=SYNTHETIC)
    axis.set_xscale("log")
    axis.set_xlim(left=1)
    axis.set_ylim(0, 1.02)
    axis.set_xlabel("Q-error", fontsize=8)
    axis.set_ylabel("share of queries", fontsize=8)
    _quiet(axis)
    return _svg(figure)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _grid(count: int, height: float = 1.25) -> tuple[Figure, Sequence[Axes]]:
    """A figure with room for ``count`` small plots, and their axes."""
    across = min(_ACROSS, max(count, 1))
    rows = ceil(max(count, 1) / across)
    figure = _figure(2.4 * across, height * rows)
    axes: Any = figure.subplots(rows, across, squeeze=False).ravel()
    for axis in axes:
        _quiet(axis)
        axis.set_yticks([])
    for axis in axes[count:]:
        axis.set_visible(False)
    return figure, axes


def _quiet(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=7)


def _step(axis: Axes, source: NDArray[np.float64], synthetic: NDArray[np.float64], *, ticks: bool = False) -> None:
    edges = np.arange(len(source) + 1) - 0.5
    axis.stairs(source, edges, fill=True, color=SOURCE)
    axis.stairs(synthetic, edges, color=SYNTHETIC, linewidth=1.2)
    if not ticks:
        axis.set_xticks([])


def _shares(codes: NDArray[np.integer], size: int) -> NDArray[np.float64]:
    counts = np.bincount(codes, minlength=size).astype(np.float64)
    shares: NDArray[np.float64] = counts / max(float(counts.sum()), 1.0)
    return shares


def _condensed(
    source: NDArray[np.float64], synthetic: NDArray[np.float64], *, ordered: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """At most `_BARS` bars: neighbours together where there is an order, else the largest of the source."""
    if len(source) <= _BARS:
        return source, synthetic
    if ordered:
        starts = np.arange(0, len(source), ceil(len(source) / _BARS))
        return np.add.reduceat(source, starts), np.add.reduceat(synthetic, starts)
    largest = np.argsort(-source, kind="stable")[:_BARS]
    return source[largest], synthetic[largest]


def _short(name: str) -> str:
    return name if len(name) <= _TITLE else name[: _TITLE - 1] + "…"


def _svg(figure: Figure) -> str:
    """The figure as an ``<svg>`` element, the same bytes for the same figure."""
    import matplotlib as mpl

    text = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "privbench", "font.family": "sans-serif"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    whole = text.getvalue()
    return whole[whole.index("<svg") :]
