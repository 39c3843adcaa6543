"""What views show of a row among the other kept children of its owner, as SQL: windows in the order of keyed hashes."""

from __future__ import annotations

import numpy as np
from sqlglot import exp

from privbench_core.columns.group_codes import ALONE, DIFFERENT, SAME
from privbench_core.engines.sql.codes import code_of
from privbench_core.engines.sql.literals import Expr, column, number
from privbench_core.engines.sql.relations import Tables
from privbench_core.privacy.features import MemberPlace, SiblingAgreement
from privbench_core.schema.tables import Table


def place(tables: Tables, table: Table, feature: MemberPlace) -> Expr:
    """Return the place of a row ``r`` of a table of kept rows among its siblings: see `group_codes.place_codes`."""
    value = column(tables.modelled(table.name, feature.column), "r")
    labels = np.unique(feature.order, return_inverse=True)[1].tolist()  # only the order of scores matters
    score = code_of(tables.database, value, feature.coder, labels)
    owners = tables.columns(table.name, feature.key.columns)
    before = _window(exp.RowNumber(), owners, score, tables.keyed_hash(table.name, "r"))
    size = f"LEAST(r.g, {feature.most})"
    first = exp.case().when(_ownerless(owners), number(0)).else_(before - 1)
    rank = exp.Least(this=first, expressions=[exp.maybe_parse(f"{size} - 1")], ignore_nulls=True)
    # rank * most - rank * (rank - 1) / 2 + size - 1 - rank, in halves, as one of two neighbours is even
    starts = exp.case()
    for each in range(min(feature.most, (table.owner_key or feature.key).max_children or 1)):
        start = each * feature.most - each * (each - 1) // 2 - 1 - each
        starts = starts.when(rank.eq(each), number(start))
    return starts.else_(number(0)) + exp.maybe_parse(size)


def agreement(tables: Tables, table: Table, feature: SiblingAgreement) -> Expr:
    """Return whether a row ``r`` agrees with the next of its siblings, see `Relations.next_siblings`."""
    code = code_of(tables.database, column(tables.modelled(table.name, feature.column), "r"), feature.coder)
    owners = tables.columns(table.name, feature.key.columns)
    order = tables.keyed_hash(table.name, "r")
    following, first = (_window(of(this=code.copy()), owners, order) for of in (exp.Lead, exp.FirstValue))
    found = exp.case().when(exp.or_(_ownerless(owners), "r.g = 1"), number(ALONE))
    return found.when(code.eq(exp.func("COALESCE", following, first)), number(SAME)).else_(number(DIFFERENT))


def _window(of: exp.Expression, owners: list[str], *order: Expr) -> exp.Window:
    """Return a function of the siblings of a row, in an order."""
    ordered = exp.Order(expressions=[each.copy() for each in order])
    return exp.Window(this=of, partition_by=[column(name, "r") for name in owners], order=ordered)


def _ownerless(owners: list[str]) -> Expr:
    return exp.or_(*(f"r.{name} IS NULL" for name in owners))
