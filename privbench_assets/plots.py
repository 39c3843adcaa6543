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

_ACROSS = 4  # plots in a row
_MOST = 12  # panels: the event log keeps every image
_LABELLED = 12  # bars that still get a label each
_ACROSS_LABELS = 24  # characters of labels that fit below a panel side by side
_INK, _FILL = "#333333", "#4c78a8"
_BAR = 40  # characters of the whole lifetime


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
    figure = Figure(figsize=(2.5 * across, 2.0 * down), layout="constrained")
    for panel, (name, bar) in zip(figure.subplots(down, across, squeeze=False).flat, shown.items(), strict=False):
        _bar_chart(panel, name, bar)
    for panel in figure.axes[len(shown) :]:
        panel.set_axis_off()
    return _image(title, figure)


def budget_bar(spent: Mapping[str, float], left: float) -> dg.MarkdownMetadataValue:
    """The lifetime budget as a bar of text, which shows without a click: what each ε took, and what is left.

    Args:
        spent: Share of the lifetime budget by name, in [0, 1].
        left: Share that is left.
    """
    parts = {**spent, "left": left}
    blocks = {name: ("░" if name == "left" else "█") * max(1, round(share * _BAR)) for name, share in parts.items()}
    lines = [f"| {name} | {blocks[name]} | {share:.1%} |" for name, share in parts.items() if share > 0]
    return dg.MetadataValue.md("\n".join(["| | | of the lifetime |", "|---|---|---|", *lines]))


def _bar_chart(panel: Axes, name: str, bar: Mapping[str, Sequence[Any]]) -> None:
    counts = np.asarray(bar["counts"], dtype=float)
    labels = [str(label) for label in bar["labels"]]
    panel.bar(np.arange(len(counts)), counts, width=0.9 if len(counts) <= _LABELLED else 1.0, color=_FILL)
    panel.set_title(name, fontsize=8, color=_INK)
    panel.spines[["top", "right"]].set_visible(False)
    panel.set_ylabel("rows", fontsize=6, color=_INK)
    panel.tick_params(labelsize=6, colors=_INK)
    panel.locator_params(axis="y", nbins=3)
    step = 1 if len(labels) <= _LABELLED else max(1, len(labels) // 4)
    at = np.arange(0, len(labels), step)
    longest = max((len(labels[i]) for i in at), default=0)
    upright = longest * len(at) <= _ACROSS_LABELS
    panel.set_xticks(at, [labels[i] for i in at], rotation=0 if upright else 90, fontsize=6, color=_INK)


def _image(title: str, figure: Figure) -> dg.MarkdownMetadataValue:
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=80, metadata={"Software": None})
    text = base64.b64encode(sink.getvalue()).decode("ascii")
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{text})")
