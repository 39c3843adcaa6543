"""Learn what the documents of a column look like, for a part of a profile's price.

Keys of documents may be as private as any value, so shapes are a list that a stability threshold lets through, and so
are shapes with the values that say what type a document is of, and whole documents. The finest list that names most
rows is taken: where few documents are most of all (settings, sets of tags), these are the values of the column; else
the leaves of the shapes are columns from then on.
"""

from __future__ import annotations

from dataclasses import dataclass

from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.grid import qualified
from privbench_core.guards import DOCUMENT_LEAVES
from privbench_core.privacy.budget import Price, zero
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.columns import Column
from privbench_core.schema.documents import WHOLE, WHOLES, Leaf, known_leaves
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING


@dataclass(frozen=True)
class Shapes:
    """What was learned of the documents of a column.

    Attributes:
        column: The list that they are of, as a column: shapes, or whole documents.
        codec: Its values that may be named, the most common first; none where noise hides all documents.
        leaves: Of the shapes.
        rest: What is left of the price.
    """

    column: Column
    codec: CategoricalCodec
    leaves: tuple[Leaf, ...]
    rest: Price


def learn_shapes(session: PrivateSession, table: Table, document: Column, price: Price, first: float) -> Shapes:
    """Learn the finest list that names most documents of a column.

    Formal guarantee: satisfies δ-approximate ρ-zCDP at the price given, less what is left of it, for adding or removing
    one privacy unit; ``docs/privacy.md``, section 5, mechanism 6.

    Args:
        session: Open for the step.
        table: The table.
        document: One of its columns of documents.
        price: Of all that is learned of it, with a δ.
        first: Share of the price for a look at each list, all of which is spent; half of the δ goes with it.

    Raises:
        UnsupportedBudgetError: The price has no δ.
    """
    half = price.delta / 2
    part, rest = price.share(first / len(WHOLES)), price.share(1 - first).with_delta(half)
    columns = [Leaf(document, kind).column for kind in WHOLES]
    found = [session.discover(table.name, c.name, part.with_delta(half / len(WHOLES))).counts for c in columns]
    named = [sum(counts.values()) for counts in found]
    most = (1 - TUNING.list_shares[0]) * named[0]  # a list pays for so many that are not named
    finest = max(place for place, rows in enumerate(named) if rows >= most)
    column, counts = columns[finest], found[finest]
    if counts and WHOLES[finest] == WHOLE:  # nothing else is to be learned
        counts |= session.discover(table.name, column.name, rest, tuple(counts)).counts
        rest = zero(price.measure)
    names = tuple(sorted(counts, key=lambda name: (-counts[name], name)))
    codec = CategoricalCodec(qualified(column, table.name), column.type, names, column.nullable)
    leaves = () if WHOLES[finest] == WHOLE else tuple(known_leaves(document, names)[:DOCUMENT_LEAVES])
    return Shapes(column, codec, leaves, rest)
