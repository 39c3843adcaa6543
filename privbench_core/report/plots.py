"""Small plots as inline SVG: one-way and two-way marginals, fanouts, heat maps of joins and queries, scatter plots.

They show private counts. Text stays text in the SVG, so that pages are small and searchable.

PrivBench's query heat map (section 5, Figure 4) shows one query on the sum-product networks of two databases. The
network of the source is learned without noise, so it is internal. The paper learns a second one on the synthetic data;
here the synthetic rows go through the *same* splits. Then the two trees have the same nodes, and where two nodes differ
in colour, the data differ and not the trees. Leaves have one column each: within a region columns count as independent,
so a tree's selectivity is an estimate. Reports show the exact selectivities too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from privbench_core.evaluation.joins import satisfying
from privbench_core.evaluation.marginals import EncodedTable, Figures, marginal
from privbench_core.marginals.spn import split_by_attribute
from privbench_core.privacy.split_rules import ByValue

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CodeQuery = Mapping[str, NDArray[np.bool_]]
"""A conjunction: column -> which of its codes satisfy it."""


class Network(NamedTuple):
    """The shape of a network: a leaf of one column, independent sets of columns, or disjoint rows by a ``rule``."""

    columns: tuple[str, ...]
    parts: tuple[Network, ...] = ()
    rule: ByValue | None = None


@dataclass(frozen=True)
class Heat:
    """A node of a heat map.

    The selectivity is the share of the node's rows that satisfy the query's conditions on the node's columns.
    """

    label: str
    kind: str  # "sum", "product" or "leaf"
    share: float  # of the rows of the sum node above, shown on the edge; 1 below other nodes
    selectivity: float
    parts: tuple[Heat, ...] = ()  # those that have a column of the query

    @property
    def leaves(self) -> int:
        """Number of leaves below, or 1 for a leaf."""
        return sum(part.leaves for part in self.parts) or 1

    @property
    def depth(self) -> int:
        """Number of levels."""
        return 1 + max((part.depth for part in self.parts), default=0)


class QueryHeat(NamedTuple):
    """One query on both databases."""

    query: dict[str, float]  # the columns with conditions, and the share of their codes that satisfy them
    exact: Sequence[float]  # selectivity on the source and on the bundle
    source: Heat
    synthetic: Heat


def worst_and_typical(true: EncodedTable, synthetic: EncodedTable, rng: np.random.Generator) -> tuple[QueryHeat, ...]:
    """Return, of random queries, those with the largest and the median relative difference of selectivity.

    Queries that very few or most rows of the source satisfy are left out; the result may be empty.
    """
    answered = [
        (query, selectivity(true, query), selectivity(synthetic, query)) for query in random_queries(true, 200, rng)
    ]
    fit = [found for found in answered if 0.01 <= found[1] <= 0.4]  # noqa: PLR2004 - legible ones
    if not fit or not len(synthetic.codes):
        return ()
    fit.sort(key=lambda found: -abs(found[1] - found[2]) / found[1])
    node = grow_network(true)
    return tuple(
        QueryHeat(
            {column: float(codes.mean()) for column, codes in query.items()},
            exact,
            heat(node, true, query),
            heat(node, synthetic, query),
        )
        for query, *exact in ([fit[0]] if len(fit) == 1 else [fit[0], fit[len(fit) // 2]])
    )


def grow_network(coded: EncodedTable, names: Sequence[str] | None = None, depth: int = 2) -> Network:
    """Learn a network of some columns (all by default) from exact counts: split independent groups, else rows.

    Two row splits from root to leaf make at most four regions, which is what can be read.
    """
    names = coded.names if names is None else names
    leaves = [Network((name,)) for name in names]
    if len(names) == 1 or depth == 0 or len(coded.codes) < 1000:  # noqa: PLR2004 - regions of at least 500 rows
        return _product(leaves)
    scores = _dependence(coded, names)
    graph = nx.Graph([pair for pair, score in scores.items() if score > 0.08])  # noqa: PLR2004 - R-score, of all rows
    graph.add_nodes_from(names)
    groups = [[name for name in names if name in group] for group in nx.connected_components(graph)]
    if len(groups) > 1:
        return _product([grow_network(coded, group, depth) for group in groups])
    ordered = [name for name, is_ordered in zip(coded.names, coded.ordered, strict=True) if is_ordered]
    rule = split_by_attribute(ordered, scores, {name: _counts(coded, name) for name in names})
    if rule is None:
        return _product(leaves)
    return Network(tuple(names), tuple(grow_network(part, names, depth - 1) for part in _split(coded, rule)), rule)


def _product(parts: Sequence[Network]) -> Network:
    flat = [inner for part in parts for inner in (part.parts if part.parts and part.rule is None else (part,))]
    return flat[0] if len(flat) == 1 else Network(tuple(name for part in flat for name in part.columns), tuple(flat))


def _split(coded: EncodedTable, rule: ByValue) -> list[EncodedTable]:
    """Return the rows of each part."""
    part_of = rule.assign({rule.column: coded.codes[:, coded.names.index(rule.column)]})
    return [replace(coded, codes=coded.codes[part_of == part]) for part in range(rule.parts)]


def heat(node: Network, coded: EncodedTable, query: CodeQuery, share: float = 1.0) -> Heat:
    """Return the selectivity of ``query`` on a table at every node that has one of its columns.

    ``share`` is that of the table's rows among those of the sum node above.
    """
    if not node.parts:
        (name,) = node.columns
        return Heat(name, "leaf", share, selectivity(coded, {name: query[name]}))
    if node.rule is None:
        parts = tuple(heat(part, coded, query) for part in node.parts if not query.keys().isdisjoint(part.columns))
        if len(parts) == 1:
            return replace(parts[0], share=share)
        return Heat("×", "product", share, float(np.prod([part.selectivity for part in parts])), parts)
    parts = tuple(
        heat(part, rows, query, len(rows.codes) / max(len(coded.codes), 1))
        for part, rows in zip(node.parts, _split(coded, node.rule), strict=True)
    )
    return Heat(f"split by {node.rule.column}", "sum", share, sum(p.share * p.selectivity for p in parts), parts)


def selectivity(coded: EncodedTable, query: CodeQuery) -> float:
    """Return the share of rows that satisfy a query; 0 in a table without rows."""
    predicate = tuple((coded.names.index(name), codes) for name, codes in query.items())
    return float(satisfying(coded.codes, predicate).sum()) / max(len(coded.codes), 1)


def random_queries(coded: EncodedTable, count: int, rng: np.random.Generator) -> tuple[CodeQuery, ...]:
    """Return conjunctions of ranges or sets of codes on three columns, each holding for a random row."""
    found = []
    for _ in range(count if len(coded.codes) and coded.names else 0):
        row = coded.codes[int(rng.integers(len(coded.codes)))]
        chosen = np.sort(rng.choice(len(coded.names), min(3, len(coded.names)), replace=False))
        found.append({coded.names[c]: _around(int(row[c]), coded.sizes[c], coded.ordered[c], rng) for c in chosen})
    return tuple(found)


def _around(code: int, size: int, ordered: bool, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a range that ends at a code, or the code and a quarter of the other values."""
    if not ordered:
        admitted = rng.random(size) < 0.25  # noqa: PLR2004 - a quarter
        admitted[code] = True
        return admitted
    return np.arange(size) <= code if rng.integers(2) else np.arange(size) >= code


def _dependence(coded: EncodedTable, names: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return R-scores as shares of rows: half the L1 distance of a pair's counts from the product of its marginals."""
    most = 12  # codes of a column: with more, noise resembles dependence
    coarse = {}
    for name in names:  # groups of neighbouring codes, of about as many rows
        counts = _counts(coded, name)
        group = np.minimum((np.cumsum(counts) - counts) * most // max(counts.sum(), 1), most - 1)
        coarse[name] = group.astype(np.int64)[coded.codes[:, coded.names.index(name)]]
    scores = {}
    for a, b in combinations(names, 2):
        joint = np.bincount(coarse[a] * most + coarse[b], minlength=most**2).reshape(most, most)
        shares = joint / max(joint.sum(), 1)
        independent = np.outer(shares.sum(axis=1), shares.sum(axis=0))
        scores[a, b] = float(np.abs(shares - independent).sum() / 2)
    return scores


def _counts(coded: EncodedTable, name: str) -> NDArray[np.float64]:
    column = coded.names.index(name)
    return np.bincount(coded.codes[:, column], minlength=coded.sizes[column]).astype(np.float64)


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
