"""How a step spends its price that measures a key off the ownership path."""

from __future__ import annotations

from dataclasses import dataclass, field

from privbench_core.measure.pairwise import PairwiseFit
from privbench_core.schema.identity import Identity


@dataclass(frozen=True)
class LookupFit:
    """How a lookup step spends its price; public constants.

    Attributes:
        popularity_share: Part of the price for how often private parents are referred to.
        public_share: The same of public ones, row by row, where there are columns to pair them with.
        margin_share: Part of the rest for one-way marginals of a private parent, where there are columns to pair them
            with.
        context_share: Part of what pairs get for one-way marginals of the owner, where its attributes are among these.
        pairs: How joints are chosen and measured.
    """

    popularity_share: float = 0.25
    public_share: float = 0.6
    margin_share: float = 0.3
    context_share: float = 0.2
    pairs: PairwiseFit = field(default_factory=PairwiseFit)

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {
            "popularity_share": self.popularity_share,
            "public_share": self.public_share,
            "margin_share": self.margin_share,
            "context_share": self.context_share,
            "pairs": self.pairs.identity(),
        }
