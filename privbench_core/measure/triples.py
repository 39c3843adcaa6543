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

from privbench_core.estimate.joints import NoisyTable
from privbench_core.estimate.triples import Triple, explained
from privbench_core.measure.scores import largest_noise
from privbench_core.models.measured import MeasuredLeaf
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.queries import Distances, Marginal

Array = NDArray[np.float64]
SHARE_OF_TRIPLES = 0.02
"""Of the price, for screening triples and measuring those that stand out; what is not needed goes to marginals. Chosen
by hand: noise of everything else grows by 1%."""
_SCREEN = 1 / 2  # of that, for scores
_MOST_CELLS = 64  # of a triple; chosen by hand: more hold too few rows each
_MOST_COLUMNS = 24  # the smallest ones are looked at; of more there are too many triples
_STANDS_OUT = 0.05  # of all rows: score beyond sampling error from which three columns have more to do with each other
_CLEAR = 0.05  # of all rows: largest noise of scores; fewer triples are screened where it would be more
_SAMPLING = 0.4  # half of the expected absolute value of a normal variable


def candidate_triples(curator: Curator, clean: Mapping[str, Array], total: float, price: Price) -> list[Triple]:
    """Return the triples to screen, smallest first: as many as leave their scores clear.

    Args:
        curator: Of a view with these columns.
        clean: Clean counts of the columns.
        total: Released number of rows.
        price: Of everything, of which triples get `SHARE_OF_TRIPLES`.
    """
    names = sorted((n for n in clean if len(clean[n]) > 1), key=lambda n: len(clean[n]))[:_MOST_COLUMNS]
    cells = {triple: math.prod(len(clean[name]) for name in triple) for triple in combinations(names, 3)}
    small = sorted((triple for triple in cells if cells[triple] <= _MOST_CELLS), key=lambda triple: cells[triple])
    for_scores = price.share(SHARE_OF_TRIPLES * _SCREEN)
    while small and largest_noise(curator, len(small), for_scores) > _CLEAR * total:
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
    for_scores, rest = price.share(_SCREEN), price.share(1 - _SCREEN)
    noisy = curator.measure("triple scores", [Distances(tuple(((t, expected[t]),) for t in triples))], for_scores)
    cells = np.array([expected[triple].size for triple in triples])
    off = largest_noise(curator, len(triples), for_scores) + _SAMPLING * np.sqrt(cells * total)
    standing = noisy.values[0] / 2 - off > _STANDS_OUT * total
    chosen = [triple for triple, stands in zip(triples, standing.tolist(), strict=True) if stands]
    if not chosen:
        return leaf, rest
    counted = {}
    for triple in chosen:
        found = curator.measure(" x ".join(triple), [Marginal(triple)], rest.share(1 / len(chosen)))
        counted[triple] = NoisyTable(found.values[0], found.sigma)
    return replace(leaf, triples=counted), rest.share(0)
