"""Learn what the documents of a column look like, for a part of a profile's price.

Keys of documents may be as private as any value, so shapes are a list that a stability threshold lets through, and so
are shapes with the values that say what type a document is of, and whole documents. The finest list that names most
rows is taken: where few documents are most of all (settings, sets of tags), these are the values of the column; else
the leaves of the shapes are columns from then on. Where keys come and go, so that shapes are too many to be named, the
leaves are such a list themselves, and a document has those that are drawn for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.discretizer import Binning, Discretizer
from privbench_core.columns.grid import qualified
from privbench_core.guards import DOCUMENT_LEAVES
from privbench_core.privacy.budget import Price, zero
from privbench_core.privacy.features import Feature, Own
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.schema.columns import Column
from privbench_core.schema.documents import PLACE, SHAPE, TYPED, WHOLE, WHOLES, Leaf, find_leaf, known_leaves
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING


@dataclass(frozen=True)
class Shapes:
    """What was learned of the documents of a column.

    Attributes:
        codecs: Of the list of shapes, or of whole documents, the most common first, by the name of their leaf; empty
            where noise hides all documents, or their leaves are all that is known.
        leaves: The leaves of documents that are columns.
        rest: What is left of the price.
    """

    codecs: dict[str, CategoricalCodec]
    leaves: tuple[Leaf, ...]
    rest: Price


def learn_shapes(session: PrivateSession, table: Table, document: Column, price: Price, first: float) -> Shapes:
    """Learn the finest list that names most documents of a column, or the leaves that documents may have.

    Formal guarantee: satisfies δ-approximate √(2ρ)-GDP at the price given, less what is left of it, for adding or
    removing one privacy unit; ``docs/privacy.md``, section 5, mechanisms 1 and 6.

    Args:
        session: Open for the step.
        table: The table.
        document: One of its columns of documents.
        price: Of all that is learned of it, with a δ.
        first: Share of the price for the lists, all of which is spent; half of the δ goes with it.

    Raises:
        UnsupportedBudgetError: The price has no δ.
    """
    half, most = price.delta / 2, 1 - TUNING.list_shares[0]  # a list pays for so many that are not named
    lists, rest = price.share(first), price.share(1 - first).with_delta(half)
    check = lists.share(TUNING.first_look / 2)  # what decides how the rest is spent
    look = lists.share((1 - TUNING.first_look) / len(WHOLES)).with_delta(half / len(WHOLES))
    name, whole = _discovered(session, table, Leaf(document, WHOLE), look)
    if _named(session, table, [(name, whole)], check)[0] >= most:  # nothing else is to be learned
        left = price.share(1 - first * (TUNING.first_look / 2 + (1 - TUNING.first_look) / len(WHOLES)))
        more = _discovered(session, table, Leaf(document, WHOLE), left.with_delta(half), whole.values)[1]
        return Shapes({name: replace(whole, values=(*whole.values, *more.values))}, (), zero(price.measure))
    shapes, typed = (_discovered(session, table, Leaf(document, kind), look) for kind in (SHAPE, TYPED))
    of_shapes, of_typed = _named(session, table, [shapes, typed], check)
    if max(of_shapes, of_typed) < most:
        part, rest = rest.share(TUNING.list_shares[0]), rest.share(most).with_delta(half / 2)
        places = _discovered(session, table, Leaf(document, PLACE), part.share(1 / 2).with_delta(half / 2))
        (of_places,) = _named(session, table, [places], part.share(1 / 2))
        if of_places > of_shapes:
            found = (find_leaf((document,), str(value)) for value in places[1].values)
            return Shapes({}, tuple(leaf for leaf in found if leaf is not None)[:DOCUMENT_LEAVES], rest)
    name, codec = typed if of_typed >= most else shapes
    leaves = known_leaves(document, map(str, codec.values))
    return Shapes({name: codec} if codec.values else {}, tuple(leaves[:DOCUMENT_LEAVES]), rest)


def _discovered(
    session: PrivateSession, table: Table, leaf: Leaf, price: Price, known: Sequence[object] = ()
) -> tuple[str, CategoricalCodec]:
    """Return the name of a list and a codec of its values that may be named and were not ``known``."""
    column = leaf.column
    found = session.discover(table.name, column.name, price, tuple(map(str, known))).counts
    names = tuple(sorted(found, key=lambda name: (-found[name], name)))
    return column.name, CategoricalCodec(qualified(column, table.name), column.type, names, column.nullable)


def _named(
    session: PrivateSession, table: Table, codecs: Sequence[tuple[str, CategoricalCodec]], price: Price
) -> list[float]:
    """Return the share of the documents whose value each codec names, by a count of each for ``price`` in all."""
    features: dict[str, tuple[Feature, Discretizer]] = {}
    for name, codec in codecs:
        code_of = np.append(np.zeros(len(codec.values), int), 1 + np.arange(codec.size - len(codec.values)))
        features[name] = Own(name), Discretizer(codec, Binning.even(code_of))
    view = session.view(ViewSpec(table.name, features, (1,)), "documents")
    noisy = view.measure("named", [Marginal((name,)) for name, _ in codecs], price)
    counts = [
        values[:2] if codec.values else (0.0, 1.0) for values, (_, codec) in zip(noisy.values, codecs, strict=True)
    ]
    return [float(np.clip(inside / max(inside + outside, 1.0), 0.0, 1.0)) for inside, outside in counts]
