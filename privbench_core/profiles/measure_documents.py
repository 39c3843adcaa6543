"""Learn what the documents of a column look like, for a part of a profile's price.

Keys of documents may be as private as any value, so shapes are a list that a stability threshold lets through, and so
are whole documents. Where few documents are most of all (settings, sets of tags), these are the values of the column;
else the leaves of the shapes are columns from then on.
"""

from __future__ import annotations

from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.grid import qualified
from privbench_core.guards import DOCUMENT_LEAVES
from privbench_core.privacy.budget import Price
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.columns import Column
from privbench_core.schema.documents import SHAPE, WHOLE, Leaf, known_leaves
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING


def learn_shapes(
    session: PrivateSession, table: Table, document: Column, price: Price
) -> tuple[CategoricalCodec, list[Leaf]]:
    """Return a codec of whole documents, or of shapes, the most common first, and the leaves that these have.

    No value is named where noise hides all documents.

    Formal guarantee: satisfies δ-approximate ρ-zCDP at the price given, for adding or removing one privacy unit;
    ``docs/privacy.md``, section 5, mechanism 6.

    Args:
        session: Open for the step.
        table: The table.
        document: One of its columns of documents.
        price: With a δ.

    Raises:
        UnsupportedBudgetError: The price has no δ.
    """
    half = price.share(1 / 2).with_delta(price.delta / 2)
    shapes, whole = (Leaf(document, kind).column for kind in (SHAPE, WHOLE))
    of_shapes, of_whole = (session.discover(table.name, leaf.name, half).counts for leaf in (shapes, whole))
    few = sum(of_whole.values()) >= (1 - TUNING.least_share) * sum(of_shapes.values())
    leaf, found = (whole, of_whole) if few else (shapes, of_shapes)
    names = tuple(sorted(found, key=lambda name: (-found[name], name)))
    codec = CategoricalCodec(qualified(leaf, table.name), leaf.type, names, leaf.nullable)
    return codec, [] if few else known_leaves(document, names)[:DOCUMENT_LEAVES]
