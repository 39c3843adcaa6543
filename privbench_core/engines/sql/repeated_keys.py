"""Primary keys that occur more than once, counted while rows pass by in the order of their keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from privbench_core.engines.stored import stored_type
from privbench_core.schema.tables import Table


@dataclass
class Keys:
    """Counts the primary keys that occur before, in rows that come in their order, and sees whether rows do.

    Attributes:
        places: Of the key's columns.
        comparable: Whether all are whole numbers: those are in the same order, and equal, for everybody.
        ascending: Whether each key so far, of one column, is above the one before.
        repeated: Rows so far whose key the row before has.
    """

    places: list[int]
    comparable: bool
    ascending: bool
    repeated: int = 0
    _last: pa.Table | None = None

    @classmethod
    def of(cls, table: Table) -> Keys:
        """Return what is known of no rows."""
        declared = [column.name for column in table.columns]
        whole = all(pa.types.is_int64(stored_type(table.column(name))) for name in table.primary_key)
        return cls([declared.index(name) for name in table.primary_key], whole, whole and len(table.primary_key) == 1)

    def seen(self, rows: pa.Table) -> pa.Table:
        """Count in the next rows, of stored values in spec order, and return them."""
        if self.comparable and rows.num_rows:
            keys = rows.select(self.places)
            keys = keys if self._last is None else pa.concat_tables([self._last, keys])
            self._last = keys.slice(keys.num_rows - 1)
            same = np.ones(keys.num_rows - 1, dtype=bool)
            for column in keys.columns:
                valid, values = column.is_valid().to_numpy(), column.fill_null(0).to_numpy()
                same &= valid[1:] & valid[:-1]
                same &= values[1:] == values[:-1]
                self.ascending &= bool(valid.all() and (values[1:] > values[:-1]).all())
            self.repeated += int(same.sum())
        return rows
