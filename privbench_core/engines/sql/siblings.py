"""What views show of a row among the other kept children of its owner, as SQL: windows in the order of keyed hashes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from privbench_core.columns.group_codes import ALONE, DIFFERENT, SAME
from privbench_core.engines.keyed_order import order_key
from privbench_core.engines.sql.codes import code_of
from privbench_core.engines.sql.database import Database
from privbench_core.engines.sql.literals import Expr, is_null, number, text
from privbench_core.engines.sql.relations import Names, column, equal, key_text
from privbench_core.privacy.features import MemberPlace, SiblingAgreement
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema


@dataclass(frozen=True)
class Siblings:
    """Makes expressions about the row ``r`` of a table of kept rows.

    Attributes:
        schema: The database.
        names: Of its tables of kept rows.
        database: Where they are.
        secret: Keys the order of siblings.
    """

    schema: Schema
    names: Names
    database: Database
    secret: bytes

    def keyed_order(self, table: str) -> Expr:
        """Return the keyed hash of a row's own key: an order in which no other row has a say."""
        key = key_text(self.names, self.database, self.schema.table(table), "r")
        return self.database.digest(exp.DPipe(this=text(order_key(self.secret)), expression=key))

    def place(self, table: str, feature: MemberPlace) -> Expr:
        """Return the place of a row among its siblings, see `columns.places.place_codes`."""
        here = self.schema.table(table)
        value = column(self.names.modelled(table, feature.column), "r")
        # Only the order of scores matters.
        labels = np.unique(feature.order, return_inverse=True)[1].tolist()
        score = code_of(self.database, value, feature.coder, labels)
        before = self._window(exp.RowNumber(), table, feature.key, score)
        size = exp.Least(this=column("g", "r"), expressions=[number(feature.most)])
        place = exp.Sub(this=before, expression=number(1))
        first = exp.case().when(self._ownerless(table, feature.key), number(0)).else_(place)
        rank = exp.Paren(this=exp.Least(this=first, expressions=[exp.Sub(this=size.copy(), expression=number(1))]))
        # rank * most - rank * (rank - 1) / 2 + size - 1 - rank, in halves, as one of two neighbours is even
        places = range(min(feature.most, (here.owner_key or feature.key).max_children or 1))
        starts = exp.case()
        for each in places:
            starts = starts.when(
                equal(rank.copy(), number(each)), number(each * feature.most - each * (each - 1) // 2 - 1 - each)
            )
        return exp.Add(this=starts.else_(number(0)), expression=size)

    def agreement(self, table: str, feature: SiblingAgreement) -> Expr:
        """Return whether a row agrees with the next of its siblings, see `Relations.next_siblings`."""
        value = column(self.names.modelled(table, feature.column), "r")
        code = code_of(self.database, value, feature.coder)
        following, first = (self._window(of(this=code.copy()), table, feature.key) for of in (exp.Lead, exp.FirstValue))
        other = exp.func("COALESCE", following, first)
        alone = exp.or_(self._ownerless(table, feature.key), equal(column("g", "r"), number(1)))
        return exp.case().when(alone, number(ALONE)).when(equal(code, other), number(SAME)).else_(number(DIFFERENT))

    def _window(self, of: exp.Expression, table: str, key: ForeignKey, *first: Expr) -> exp.Window:
        """Return a function of the siblings of a row, ordered by some expressions and then by keyed hashes."""
        order = exp.Order(expressions=[*first, self.keyed_order(table)])
        return exp.Window(this=of, partition_by=self._owners(table, key), order=order)

    def _ownerless(self, table: str, key: ForeignKey) -> Expr:
        return exp.or_(*(is_null(name) for name in self._owners(table, key)))

    def _owners(self, table: str, key: ForeignKey) -> list[Expr]:
        return [column(name, "r") for name in self.names.columns(table, key.columns)]
