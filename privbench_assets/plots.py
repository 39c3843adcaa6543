"""Small plots for Dagster's metadata, as PNG inside Markdown: no file server needed. Of released numbers only."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACROSS = 4
_MOST = 12  # panels: the event log keeps every image
_LABELLED = 12  # bars that still get a label each
_INK, _FILL = "#333333", "#4c78a8"
_SHADES = ("#4c78a8", "#72a0c9", "#9ecae9", "#54a24b", "#88d27a", "#f58518", "#ffbf79")


def bars(title: str, columns: Mapping[str, Mapping[str, Sequence[Any]]]) -> dg.MarkdownMetadataValue:
    """One small bar chart per column.

    Args:
        title: For readers who cannot see the image.
        columns: ``{column: {"labels": [...], "counts": [...]}}`` of released (noisy) counts.
    """
    from matplotlib.figure import Figure

    shown = dict(list(columns.items())[:_MOST])
    across = min(_ACROSS, len(shown))
    down = -(-len(shown) // across)
    figure = Figure(figsize=(2.3 * across, 1.6 * down), layout="constrained")
    for panel, (name, bar) in zip(figure.subplots(down, across, squeeze=False).flat, shown.items(), strict=False):
        _bar_chart(panel, name, bar)
    for panel in figure.axes[len(shown) :]:
        panel.set_axis_off()
    return _image(title, figure)


def budget(title: str, spent: Mapping[str, float], left: float) -> dg.MarkdownMetadataValue:
    """One bar of the lifetime budget: what each ε took, and what is left.

    Args:
        title: For readers who cannot see the image.
        spent: Share of the lifetime budget by name, in [0, 1].
        left: Share that is left.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 1.3), layout="constrained")
    panel = figure.subplots()
    start = 0.0
    for number, (name, share) in enumerate(spent.items()):
        panel.barh(0, share, left=start, color=_SHADES[number % len(_SHADES)], label=f"{name}: {share:.1%}")
        start += share
    panel.barh(0, left, left=start, color="#e6e6e6", label=f"left: {left:.1%}")
    panel.set(xlim=(0, 1), yticks=[], xticks=[0, 0.25, 0.5, 0.75, 1], xticklabels=["0", "25%", "50%", "75%", "100%"])
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.tick_params(labelsize=7, colors=_INK)
    panel.legend(ncols=5, fontsize=7, frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
    return _image(title, figure)


def _bar_chart(panel: Axes, name: str, bar: Mapping[str, Sequence[Any]]) -> None:
    counts = np.asarray(bar["counts"], dtype=float)
    labels = [str(label) for label in bar["labels"]]
    panel.bar(np.arange(len(counts)), counts, width=0.9 if len(counts) <= _LABELLED else 1.0, color=_FILL)
    panel.set_title(name, fontsize=8, color=_INK)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.set_yticks([])
    step = 1 if len(labels) <= _LABELLED else max(1, len(labels) // 4)
    at = np.arange(0, len(labels), step)
    panel.set_xticks(at, [labels[i][:8] for i in at], fontsize=6, color=_INK)


def _image(title: str, figure: Figure) -> dg.MarkdownMetadataValue:
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=80, metadata={"Software": None})
    text = base64.b64encode(sink.getvalue()).decode("ascii")
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{text})")
