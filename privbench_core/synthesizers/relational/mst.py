"""MST (McKenna, Miklau and Sheldon 2021), estimated by the `mbi` package: ``pip install 'privbench[mbi]'``.

A spanning tree of pairs of columns, selected by the exponential mechanism and measured, and the one-way marginals of
the profile; a graphical model is fitted to the answers by mirror descent. What is stored are the model's marginals, so
that rows are drawn without the package.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import combinations
from typing import Any

import numpy as np

from privbench_core.arrays import Array
from privbench_core.errors import SpecError
from privbench_core.guards import TOLERANCE
from privbench_core.marginals.measured import MeasuredLeaf
from privbench_core.marginals.one_way import OneWay
from privbench_core.marginals.spn import Leaf, node_to_dict
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.contract import Step
from privbench_core.synthesizers.relational.tables import fitted_steps

Pair = tuple[str, str]


class MST:
    """Marginals of single columns and of a spanning tree of pairs. Pure (δ = 0) and GDP."""

    joints = False  # pairs off the tree are not measured, whatever the budget

    def steps(self, schema: Schema, table: Table, price: Price) -> list[Step]:
        """See `TableSynthesizer.steps`.

        Raises:
            SpecError: The package is not installed.
        """
        if find_spec("mbi") is None:
            raise SpecError("synthesizer.options.tables: mst needs a package: pip install 'privbench[mbi]'")
        return fitted_steps(schema, table, price, self)

    def identity(self) -> Mapping[str, Any]:
        """See `TableFit.identity`."""
        return {"model": "mst", "select": 0.5}

    def fit(self, curator: Curator, one_way: OneWay, price: Price, rng: np.random.Generator) -> Mapping[str, Any]:
        """See `TableFit.fit`.

        Formal guarantee: satisfies ε-DP for a pure price and √(2ρ)-GDP otherwise at the price given, for adding or
        removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 2, 5 and 7.
        """
        if len(one_way.counts) < 2:  # noqa: PLR2004 - no pair
            return node_to_dict(MeasuredLeaf(one_way).fit())
        tree = _spanning_tree(curator, one_way, price.share(1 / 2))
        answers = curator.measure("pairs of a tree", [Marginal(pair) for pair in tree], price.share(1 / 2))
        noisy = dict(zip(tree, answers.values, strict=True))
        return node_to_dict(_estimated(one_way, noisy, answers.sigma))


def _spanning_tree(curator: Curator, one_way: OneWay, price: Price) -> list[Pair]:
    """Return the pairs of a tree over all columns, each the noisily furthest from independence that closes no cycle.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 5 and 7.
    """
    clean, total = one_way.clean(), one_way.total
    part = {name: number for number, name in enumerate(clean)}  # of the forest so far
    tree: list[Pair] = []
    while len(tree) < len(clean) - 1:
        pairs = [(a, b) for a, b in combinations(clean, 2) if part[a] != part[b]]
        products = Distances(tuple(((pair, np.outer(*(clean[name] for name in pair)) / total),) for pair in pairs))
        a, b = pairs[curator.select("pair of a tree", products, price.share(1 / (len(clean) - 1)))]
        tree.append((a, b))
        part = {name: part[a] if number == part[b] else number for name, number in part.items()}
    return tree


def _estimated(one_way: OneWay, pairs: Mapping[Pair, Array], sigma: float) -> Leaf:
    """Return the marginals of the graphical model that fits all answers best: columns' own, and those of the tree."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on its settings, and those of jax, that are not ours to change
        mbi, estimation, jax = (import_module(name) for name in ("mbi", "mbi.estimation", "jax"))
        numbers = {name: f"c{number}" for number, name in enumerate(one_way.counts)}  # names may be any text here

        def clique(columns: Iterable[str]) -> tuple[str, ...]:
            return tuple(numbers[name] for name in columns)

        domain = mbi.Domain(clique(numbers), [len(counts) for counts in one_way.counts.values()])
        with jax.enable_x64(True):
            answers = [
                mbi.LinearMeasurement(counts, clique((name,)), float(np.sqrt(np.mean(one_way.sigmas[name] ** 2))))
                for name, counts in one_way.counts.items()
            ]
            answers += [mbi.LinearMeasurement(noisy.ravel(), clique(pair), sigma) for pair, noisy in pairs.items()]
            model = estimation.MirrorDescent().estimate(domain, answers, known_total=one_way.total, tol=TOLERANCE)

            def marginal(columns: Sequence[str]) -> Array:
                shape = [len(one_way.counts[name]) for name in columns]
                found = np.asarray(model.project(clique(columns)).datavector(), dtype=np.float64)
                counts: Array = np.maximum(found, 0).reshape(shape)
                return np.asarray(counts / counts.sum())

            marginals = {name: marginal((name,)) for name in numbers}
            return Leaf(one_way.total, marginals, {pair: marginal(pair) for pair in pairs})
