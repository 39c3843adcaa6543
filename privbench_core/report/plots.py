"""Small plots as inline SVG: one-way and two-way marginals, fanouts, heat maps of joins and queries, scatter plots.

They show private counts. Text stays text in the SVG, so that pages are small and searchable.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.evaluation.encode import EncodedTable
from privbench_core.evaluation.heatmap import Heat
from privbench_core.evaluation.marginals import Figures, marginal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCE, SYNTHETIC = "#9aa5b1", "#c2410c"
_MAX_BARS = 60  # of more codes, ordered ones are merged, and the rarest of the others left out


def marginals(true: EncodedTable, synthetic: EncodedTable, distances: dict[str, float]) -> str:
    """Plot the one-way marginal of every attribute: the source filled, the synthetic table as a line."""
    across = min(4, len(true.names))
    down = -(-len(true.names) // across)
    figure = _figure(2.4 * across, 1.25 * down)
    axes: Any = figure.subplots(down, across, squeeze=False).ravel()
    for axis in axes[len(true.names) :]:
        axis.set_visible(False)
    for position, (name, axis) in enumerate(zip(true.names, axes, strict=False)):
        shares = [marginal(coded.codes[:, position], true.sizes[position]) for coded in (true, synthetic)]
        groups = _groups(shares[0], ordered=true.ordered[position], most=_MAX_BARS)
        _step(axis, *(np.array([share[group].sum() for group in groups]) for share in shares))
        axis.set_xticks([])
        axis.set_title(f"{_short(name)}  {distances[name]:.3f}", fontsize=8, loc="left")
    return _svg(figure)


def fanout(true: NDArray[np.int64], synthetic: NDArray[np.int64]) -> str:
    """Plot the distributions of the fanout."""
    size = int(max(true.max(initial=0), synthetic.max(initial=0))) + 1
    figure = _figure(3.2, 2.0)
    axis = figure.add_subplot()
    _step(axis, marginal(true, size), marginal(synthetic, size))
    if size > _MAX_BARS:
        axis.set_xticks([])
    axis.set_title("share of parents by their number of children", fontsize=8, loc="left")
    return _svg(figure)


def pair(true: EncodedTable, synthetic: EncodedTable, columns: tuple[str, str]) -> str:
    """Plot a 2-way marginal of both tables side by side, in one colour scale (darker is more, by square root)."""
    from matplotlib.colors import PowerNorm

    positions = [true.names.index(name) for name in columns]
    sizes = [true.sizes[position] for position in positions]
    shares = []
    for coded in (true, synthetic):
        index = np.ravel_multi_index([coded.codes[:, position] for position in positions], sizes)
        shares.append(marginal(index, sizes[0] * sizes[1]).reshape(sizes))
    for axis, position in enumerate(positions):
        groups = _groups(shares[0].sum(axis=1 - axis), ordered=true.ordered[position], most=24)
        shares = [np.stack([share.take(g, axis=axis).sum(axis=axis) for g in groups], axis=axis) for share in shares]
    figure = _figure(4.6, 1.9)
    norm = PowerNorm(0.5, vmin=0, vmax=max(float(share.max()) for share in shares) or 1.0)
    for axes, share, title in zip(figure.subplots(1, 2), shares, ("source", "bundle"), strict=True):
        axes.imshow(share.T, cmap="YlOrBr", norm=norm, origin="lower", aspect="auto", interpolation="nearest")
        axes.set_title(title, fontsize=8, loc="left")
        axes.set_xlabel(_short(columns[0]), fontsize=8)
        axes.set_ylabel(_short(columns[1]) if title == "source" else "", fontsize=8)
        axes.set(xticks=[], yticks=[])
    return _svg(figure)


def heat_map(pairs: Sequence[Figures]) -> str:
    """Plot the distance of each pair (parent attribute down, child attribute across)."""
    parents, children = (list(dict.fromkeys(pair[side] for pair in pairs)) for side in ("parent", "child"))
    values = np.full((len(parents), len(children)), np.nan)
    for pair in pairs:
        values[parents.index(pair["parent"]), children.index(pair["child"])] = pair["tvd"]
    figure = _figure(1.6 + 0.55 * len(children), 1.0 + 0.3 * len(parents))
    axis = figure.add_subplot()
    top = max(0.2, float(np.nanmax(values)))
    axis.pcolormesh(values, cmap="Oranges", vmin=0, vmax=top, edgecolors="white", linewidth=1)
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if value > 0.7 * top else "black"
        text = "" if np.isnan(value) else f"{value:.2f}"
        axis.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6, color=colour)
    axis.set_xticks(np.arange(len(children)) + 0.5, [_short(c) for c in children], fontsize=7, rotation=40, ha="right")
    axis.set_yticks(np.arange(len(parents)) + 0.5, [_short(p) for p in parents], fontsize=7)
    axis.invert_yaxis()
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return _svg(figure)


def scatter(source: NDArray[np.float64], bundle: NDArray[np.float64], unit: str) -> str:
    """Plot one dot per query on logarithmic axes, source across and bundle up; both agree on the diagonal."""
    figure = _figure(3.6, 3.2)
    axis = figure.add_subplot()
    low = float(min(source.min(), bundle.min())) * 0.7
    high = float(max(source.max(), bundle.max())) * 1.4
    axis.axline((low, low), (high, high), color=SOURCE, linewidth=1)
    many = len(source) > 400  # noqa: PLR2004 - drawn as a bitmap, to keep the page small
    axis.scatter(source, bundle, s=9, color=SYNTHETIC, alpha=0.45, linewidths=0, rasterized=many)
    axis.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    _quiet(axis, f"{unit}, source", f"{unit}, bundle")
    return _svg(figure)


def q_error_curve(errors: NDArray[np.float64]) -> str:
    """Plot the cumulative distribution of Q-errors."""
    figure = _figure(3.6, 3.2)
    axis = figure.add_subplot()
    axis.step(np.sort(errors), np.arange(1, len(errors) + 1) / len(errors), where="post", color=SYNTHETIC)
    axis.set(xscale="log", xlim=(1, max(float(errors.max()) * 1.1, 1.5)), ylim=(0, 1.02))
    _quiet(axis, "Q-error", "share of queries with at most this")
    return _svg(figure)


def tree(heat: Heat, title: str) -> str:
    """Draw a query heat map: selectivities in nodes and as their colours, shares of rows on edges below sum nodes."""
    figure = _figure(max(0.55 * heat.leaves, 1.6), 0.75 * heat.depth + 0.4)
    axis = figure.add_subplot()
    axis.axis("off")
    axis.set_title(title, fontsize=8, loc="left")
    axis.set(xlim=(-0.6, heat.leaves - 0.4), ylim=(0.6 - heat.depth, 0.5))

    def node(heat: Heat, left: float, level: int) -> float:
        """Draw a node and what is below it; return where it stands."""
        begins = left + np.cumsum([0, *(part.leaves for part in heat.parts)])
        below = [node(part, begin, level - 1) for part, begin in zip(heat.parts, begins[:-1].tolist(), strict=True)]
        x = sum(below) / len(below) if below else left
        for other, part in zip(below, heat.parts, strict=True):
            axis.plot([x, other], [level, level - 1], color=SOURCE, linewidth=1, zorder=0)
            if heat.kind == "sum":
                axis.text((x + other) / 2, level - 0.4, f"{part.share:.0%}", fontsize=7, ha="center")
        strength = min(max(heat.selectivity, 0.0), 1.0) ** 0.5
        axis.scatter([x], [level], s=420, c=[strength], cmap="Oranges", vmin=0, vmax=1, edgecolors="#7c2d12")
        value = f"{heat.selectivity:.1%}" if 0 < heat.selectivity < 0.095 else f"{heat.selectivity:.0%}"  # noqa: PLR2004 - two digits
        colour = "#ffffff" if strength > 0.7 else "#1f2933"  # noqa: PLR2004 - where black is hard to read
        axis.text(x, level, value, fontsize=7, ha="center", va="center", color=colour)
        above = 0.3 if heat.kind != "leaf" else -0.3 - 0.14 * (round(left) % 2)  # names of neighbours do not touch
        axis.text(x, level + above, _short(heat.label), fontsize=7, ha="center", va="center")
        return x

    node(heat, 0.0, 0)
    return _svg(figure)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _quiet(axis: Axes, across: str = "", up: str = "") -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=7)
    axis.set_xlabel(across, fontsize=8)
    axis.set_ylabel(up, fontsize=8)


def _step(axis: Axes, source: NDArray[np.float64], synthetic: NDArray[np.float64]) -> None:
    """Draw two marginals, with the largest share on the vertical axis."""
    edges = np.arange(len(source) + 1) - 0.5
    axis.stairs(source, edges, fill=True, color=SOURCE)
    axis.stairs(synthetic, edges, color=SYNTHETIC, linewidth=1.2)
    top = max(float(source.max(initial=0)), float(synthetic.max(initial=0)))
    axis.set_yticks([0, top], ["0", f"{top:.1%}"])
    _quiet(axis)


def _groups(shares: NDArray[np.float64], *, ordered: bool, most: int) -> list[NDArray[np.int64]]:
    """Return at most ``most`` groups of codes: neighbours if ordered, else the most frequent codes of the source.

    The sparse codes at each end of an order are one group, because empty stretches would hide the rest.
    """
    codes = np.arange(len(shares))
    if len(codes) <= most:
        return [np.array([code]) for code in codes]
    if not ordered:
        return [np.array([code]) for code in np.argsort(-shares, kind="stable")[:most]]
    before = np.cumsum(shares)
    low, high = (int(np.searchsorted(before, share * before[-1])) for share in (0.002, 0.998))
    inner = np.array_split(codes[low : high + 1], min(most - 2, high + 1 - low))
    return [group for group in (codes[:low], *inner, codes[high + 1 :]) if len(group)]


def _short(name: str) -> str:
    """Return a name that fits, with a distance behind it, above the narrowest plot."""
    return name if len(name) <= 20 else name[:19] + "…"  # noqa: PLR2004 - see above


def _svg(figure: Figure) -> str:
    """The figure as an ``<svg>`` element, the same bytes for the same figure."""
    import matplotlib as mpl

    text = StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "privbench", "font.family": "sans-serif"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    whole = text.getvalue()
    return whole[whole.index("<svg") :]
