"""Looking for what no pair shows: triples of small columns, screened for a small share and measured where they differ.

A parity (c = a xor b) leaves all pairs independent. The score of a triple is half the L1 distance of its counts from
what its pairs explain; only triples far from that are measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.estimate.joints import NoisyTable, Triple, explained
from privbench_core.estimate.segmentation import ABSOLUTE
from privbench_core.guards import MAX_TRIPLE_CELLS, MAX_TRIPLE_COLUMNS
from privbench_core.measure.scores import largest_noise
from privbench_core.models.measured import MeasuredLeaf
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.tuning import TUNING

Array = NDArray[np.float64]


def candidate_triples(curator: Curator, clean: Mapping[str, Array], total: float, price: Price) -> list[Triple]:
    """Return the triples to screen, smallest first: as many as leave their scores clear.

    Args:
        curator: Of a view with these columns.
        clean: Clean counts of the columns.
        total: Released number of rows.
        price: Of everything, of which triples get `Tuning.triple_share`.
    """
    names = sorted((n for n in clean if len(clean[n]) > 1), key=lambda n: len(clean[n]))[:MAX_TRIPLE_COLUMNS]
    cells = {triple: math.prod(len(clean[name]) for name in triple) for triple in combinations(names, 3)}
    small = sorted((triple for triple in cells if cells[triple] <= MAX_TRIPLE_CELLS), key=lambda triple: cells[triple])
    for_scores = price.share(TUNING.triple_share / 2)
    while small and largest_noise(curator, len(small), for_scores) > TUNING.clear * total:
        small = small[: len(small) // 2]
    return small


def measure_triples(
    curator: Curator, leaf: MeasuredLeaf, triples: list[Triple], price: Price
) -> tuple[MeasuredLeaf, Price]:
    """Screen triples and measure those that their pairs do not explain; return the leaf and what is left of the price.

    Formal guarantee: satisfies ε-DP for a pure price and ρ-zCDP otherwise at the price given, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1, 2, 4 and 7.

    Args:
        curator: Of a view with the columns.
        leaf: What has been measured of them.
        triples: At least one.
        price: Of scores and tables together.
    """
    clean, total = leaf.one_way.clean(), leaf.one_way.total
    joints = leaf.joints({name for triple in triples for name in triple})
    expected = {triple: explained(triple, joints, clean) for triple in triples}
    for_scores, rest = price.share(1 / 2), price.share(1 / 2)
    noisy = curator.measure("triple scores", [Distances(tuple(((t, expected[t]),) for t in triples))], for_scores)
    cells = np.array([expected[triple].size for triple in triples])
    off = largest_noise(curator, len(triples), for_scores) + ABSOLUTE * np.sqrt(cells * total)
    standing = noisy.values[0] / 2 - off > TUNING.clear * total
    chosen = [triple for triple, stands in zip(triples, standing.tolist(), strict=True) if stands]
    if not chosen:
        return leaf, rest
    counted = {}
    for triple in chosen:
        found = curator.measure(" x ".join(triple), [Marginal(triple)], rest.share(1 / len(chosen)))
        counted[triple] = NoisyTable(found.values[0], found.sigma)
    return replace(leaf, triples=counted), rest.share(0)
