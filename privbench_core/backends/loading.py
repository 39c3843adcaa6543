"""What loading a bundle has in common, whatever the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from privbench_core.errors import PublishError, first_of

Files = Mapping[str, Sequence[Path]]
"""The Parquet files of a bundle by table, each table after those it refers to."""


@dataclass(frozen=True)
class Loaded:
    """What a load did.

    Attributes:
        rows: Rows loaded by table.
        left_out: What of the schema the target cannot hold, in words.
    """

    rows: dict[str, int]
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the size, and how much the target cannot hold, in one line."""
        without = f"; {len(self.left_out)} left out" if self.left_out else ""
        return f"<Loaded {len(self.rows)} tables, {sum(self.rows.values()):,} rows{without}>"


def refuse_tables(found: Sequence[str], of_bundle: Sequence[str], where: str) -> None:
    """PublishError if a target holds any table."""
    same = sorted(set(found) & set(of_bundle))
    if same:
        raise PublishError(
            f"{where}: already has {first_of(same)}; pass --replace to drop and reload them, or choose another target"
        )
    if found:
        raise PublishError(
            f"{where}: is not empty (it holds {first_of(sorted(found))}); pass --replace to load beside what is there,"
            " or choose another target"
        )
