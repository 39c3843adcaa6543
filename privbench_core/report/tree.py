"""Draw query heat maps as inline SVG: trees of circles, coloured by selectivity."""

from __future__ import annotations

from html import escape

from privbench_core.evaluation.heatmap import Heat

# In pixels unless noted, chosen by eye:
_LEVEL, _RADIUS = 72, 16  # distance of levels, and radius of nodes
_WIDTH, _MIN_LEAF, _MAX_LEAF = 440, 40, 80  # of all leaves, and of one leaf
_STAGGER = 12  # offset of every other leaf's label, so that labels do not touch
_MARGIN = 30
_LABEL = 13  # characters
_COLD, _HOT = (255, 247, 237), (154, 52, 18)
_DARK = 0.5  # colour strength above which text is white


def draw(heat: Heat, title: str) -> str:
    """Return a tree as an ``<svg>`` element: selectivities in nodes, shares of rows on the edges below sum nodes."""
    step = max(_MIN_LEAF, min(_MAX_LEAF, _WIDTH / heat.leaves))
    width = max(heat.leaves * step, 150) + 2 * _MARGIN
    height = (heat.depth - 1) * _LEVEL + 2 * _RADIUS + 62 + _STAGGER
    shapes: list[str] = []
    _node(heat, (width - heat.leaves * step) / 2, 46.0, step, shapes)
    # Edges come first in the list of each node, so circles cover their ends.
    return (
        f'<svg class="tree" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img"'
        f' aria-label="{escape(title, quote=True)}"><text x="4" y="13" class="title">{escape(title)}</text>'
        f"{''.join(shapes)}</svg>"
    )


def _node(heat: Heat, left: float, top: float, step: float, shapes: list[str]) -> float:
    """Draw a node and its subtree; return the x coordinate of its centre."""
    at, centres = left, []
    for part in heat.parts:
        inner: list[str] = []
        centres.append((_node(part, at, top + _LEVEL, step, inner), part, inner))
        at += part.leaves * step
    x = sum(centre for centre, _, _ in centres) / len(centres) if centres else left + step / 2
    for centre, part, _ in centres:
        shapes.append(f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{centre:.1f}" y2="{top + _LEVEL:.1f}"/>')
        if heat.kind == "sum":
            # Above the middle, because the label of the next node stands below it.
            middle = x + (centre - x) * 0.45 + (7 if centre > x else -7), top + _LEVEL * 0.45 + 3
            shapes.append(f'<text x="{middle[0]:.1f}" y="{middle[1]:.1f}" class="edge">{part.share:.0%}</text>')
    for _, _, inner in centres:
        shapes += inner
    strength = max(0.0, min(1.0, heat.selectivity)) ** 0.5
    colour = ",".join(str(round(cold + (hot - cold) * strength)) for cold, hot in zip(_COLD, _HOT, strict=True))
    ink = "#fff" if strength > _DARK else "#1f2933"
    shapes.append(f'<circle cx="{x:.1f}" cy="{top:.1f}" r="{_RADIUS}" fill="rgb({colour})"/>')
    value = _percent(heat.selectivity)
    shapes.append(f'<text x="{x:.1f}" y="{top + 3.5:.1f}" class="value" fill="{ink}">{value}</text>')
    if heat.kind == "leaf":
        below = top + _RADIUS + 12 + _STAGGER * (round(left / step) % 2)
        shapes.append(f'<text x="{x:.1f}" y="{below:.1f}" class="leaf">{escape(_short(heat.label))}</text>')
    elif heat.kind == "sum":
        shapes.append(f'<text x="{x:.1f}" y="{top - _RADIUS - 5:.1f}" class="leaf">{escape(heat.label)}</text>')
    else:
        shapes.append(f'<text x="{x + _RADIUS + 4:.1f}" y="{top - 9:.1f}" class="edge">×</text>')
    return x


def _percent(share: float) -> str:
    """Return a share in at most four characters."""
    if share == 0 or share >= 0.095:  # noqa: PLR2004 - two digits from here
        return f"{share:.0%}"
    return f"{100 * share:.1f}%" if share >= 0.001 else "<.1%"  # noqa: PLR2004 - one digit down to here


def _short(name: str) -> str:
    return name if len(name) <= _LABEL else name[: _LABEL - 1] + "…"
