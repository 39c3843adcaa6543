"""What views show of a row among the other kept children of its owner, as SQL: windows in the order of keyed hashes."""

from __future__ import annotations

import numpy as np
from sqlglot import exp

from privbench_core.columns.group_codes import ALONE, DIFFERENT, SAME
from privbench_core.engines.sql.codes import code_of
from privbench_core.engines.sql.database import Database
from privbench_core.engines.sql.literals import Expr, number
from privbench_core.engines.sql.relations import Names, column
from privbench_core.privacy.features import MemberPlace, SiblingAgreement
from privbench_core.schema.tables import Table


def place(names: Names, database: Database, table: Table, feature: MemberPlace, order: Expr) -> Expr:
    """Return the place of a row ``r`` of a table of kept rows among its siblings: see `group_codes.place_codes`.

    Args:
        names: Of the tables of kept rows.
        database: Where they are.
        table: The row's.
        feature: What is shown.
        order: The keyed hash of the row.
    """
    value = column(names.modelled(table.name, feature.column), "r")
    labels = np.unique(feature.order, return_inverse=True)[1].tolist()  # only the order of scores matters
    score = code_of(database, value, feature.coder, labels)
    owners = names.columns(table.name, feature.key.columns)
    before = _window(exp.RowNumber(), owners, score, order)
    size = f"LEAST(r.g, {feature.most})"
    first = exp.case().when(_ownerless(owners), number(0)).else_(before - 1)
    rank = exp.Least(this=first, expressions=[exp.maybe_parse(f"{size} - 1")], ignore_nulls=True)
    # rank * most - rank * (rank - 1) / 2 + size - 1 - rank, in halves, as one of two neighbours is even
    starts = exp.case()
    for each in range(min(feature.most, (table.owner_key or feature.key).max_children or 1)):
        start = each * feature.most - each * (each - 1) // 2 - 1 - each
        starts = starts.when(rank.eq(each), number(start))
    return starts.else_(number(0)) + exp.maybe_parse(size)


def agreement(names: Names, database: Database, table: Table, feature: SiblingAgreement, order: Expr) -> Expr:
    """Return whether a row agrees with the next of its siblings, see `Relations.next_siblings`; arguments as above."""
    code = code_of(database, column(names.modelled(table.name, feature.column), "r"), feature.coder)
    owners = names.columns(table.name, feature.key.columns)
    following, first = (_window(of(this=code.copy()), owners, order) for of in (exp.Lead, exp.FirstValue))
    found = exp.case().when(exp.or_(_ownerless(owners), "r.g = 1"), number(ALONE))
    return found.when(code.eq(exp.func("COALESCE", following, first)), number(SAME)).else_(number(DIFFERENT))


def _window(of: exp.Expression, owners: list[str], *order: Expr) -> exp.Window:
    """Return a function of the siblings of a row, in an order."""
    ordered = exp.Order(expressions=[each.copy() for each in order])
    return exp.Window(this=of, partition_by=[column(name, "r") for name in owners], order=ordered)


def _ownerless(owners: list[str]) -> Expr:
    return exp.or_(*(f"r.{name} IS NULL" for name in owners))
