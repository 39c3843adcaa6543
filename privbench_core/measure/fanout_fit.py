"""How a link along an owner key spends its price."""

from __future__ import annotations

from dataclasses import dataclass, field

from privbench_core.measure.pairwise import PairwiseFit
from privbench_core.schema.identity import Identity


@dataclass(frozen=True)
class FanoutFit:
    """How a fanout step spends its price; public constants.

    Attributes:
        count_share: Part of the price for the number of children, the rest is for pair tables between attributes.
        size_share: Part of the former for their distribution, the rest is for what it has to do with the parents.
        row_share: Part of the latter for parents' attributes over children, where a unit may have many parents.
        margin_share: Part of the pair tables' price for one-way marginals of the context.
        owner_share: Part of the counts' price for the number of rows without an owner, where the owner key may be NULL.
        agreement_share: Part of the pair tables' price for how often children of one owner agree, if noise leaves
            something of it.
        lag_share: Part of what is left then for how long after their owner children are dated, if they are.
        region_share: Part of the pair tables' price for the parts of a sum node, where the child's model has one.
        pairs: How joints are chosen and measured.
    """

    count_share: float = 0.3
    size_share: float = 0.5
    row_share: float = 0.5
    margin_share: float = 0.2
    owner_share: float = 0.1
    agreement_share: float = 0.1
    lag_share: float = 0.1
    region_share: float = 0.15
    pairs: PairwiseFit = field(default_factory=PairwiseFit)

    def identity(self) -> Identity:
        """Return all that a release depends on."""
        return {
            "count_share": self.count_share,
            "size_share": self.size_share,
            "row_share": self.row_share,
            "margin_share": self.margin_share,
            "owner_share": self.owner_share,
            "agreement_share": self.agreement_share,
            "lag_share": self.lag_share,
            "region_share": self.region_share,
            "pairs": self.pairs.identity(),
        }
