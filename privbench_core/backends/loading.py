"""What loading a bundle has in common, whatever the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from privbench_core.errors import PublishError
from privbench_core.schema.tables import Schema

_SHOWN = 5  # names in a message


class Loadable(Protocol):
    """What a back-end loads: a bundle, as far as it needs to know one."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The content of MANIFEST.json."""
        ...

    @property
    def schema(self) -> Schema:
        """The schema of the tables."""
        ...

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables, each after those it refers to."""
        ...

    def files(self, table: str) -> Sequence[Path]:
        """Return the Parquet files with the rows of a table."""
        ...


@dataclass(frozen=True)
class Loaded:
    """What a load did.

    Attributes:
        rows: Rows loaded by table.
        left_out: What of the schema the target cannot hold, in words.
    """

    rows: dict[str, int]
    left_out: tuple[str, ...] = ()


def refuse_tables(found: Sequence[str], of_bundle: Sequence[str], where: str) -> None:
    """PublishError if a target holds any table."""
    same = sorted(set(found) & set(of_bundle))
    if same:
        raise PublishError(
            f"{where}: has {_some(same)} already; pass --replace to drop and load anew, or choose another target"
        )
    if found:
        raise PublishError(
            f"{where}: is not empty (it has {_some(sorted(found))}); pass --replace to load beside what is there, or"
            " choose another target"
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
