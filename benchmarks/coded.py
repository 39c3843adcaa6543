"""Public tables as codes; read from ``coded/`` in the data folder where they are.

``NAME.csv`` with ``NAME.json`` (column -> ``{"domain": number of codes}``) are codes already: nltcs, acs and br2000 of
PrivMRF's repository (Cai et al. 2021), whose codes are taken for lists. A CSV file by itself holds numbers: randhie and
fair, as statsmodels ships them. Of those, a column with few values has them for codes, others have equal intervals.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.measure import Codes

NAMES = ("nltcs", "acs", "br2000", "randhie", "fair")
_INTERVALS = 20


@dataclass(frozen=True)
class CodedTable:
    """A table of codes.

    Attributes:
        name: Of the file.
        codes: Shape (rows, columns).
        sizes: Domain size per column.
        ordered: Whether codes are ordered, per column.
    """

    name: str
    codes: Codes
    sizes: tuple[int, ...]
    ordered: tuple[bool, ...]


def coded_tables(data: Path) -> list[CodedTable]:
    """Those of `NAMES` that the data folder has."""
    folder = data / "coded"
    return [_read(folder, name) for name in NAMES if (folder / f"{name}.csv").is_file()]


def _read(folder: Path, name: str) -> CodedTable:
    values = np.loadtxt(folder / f"{name}.csv", delimiter=",", skiprows=1)
    domain = folder / f"{name}.json"
    if domain.is_file():
        codes = values.astype(np.int64)
        stated = [int(column["domain"]) for column in json.loads(domain.read_text(encoding="utf-8")).values()]
        sizes = tuple(map(max, stated, (codes.max(axis=0) + 1).tolist()))  # br2000 has one code more than is stated
        return CodedTable(name, codes, sizes, (False,) * len(sizes))
    columns = [_numbers(column) for column in values.T]
    sizes = tuple(int(column.max()) + 1 for column in columns)
    return CodedTable(name, np.stack(columns, axis=1), sizes, tuple(size > 2 for size in sizes))


def _numbers(column: np.ndarray) -> Codes:
    different, codes = np.unique(column, return_inverse=True)
    if len(different) <= _INTERVALS:
        return np.asarray(codes, dtype=np.int64)
    shares = (column - different[0]) / (different[-1] - different[0])
    intervals: Codes = np.minimum((shares * _INTERVALS).astype(np.int64), _INTERVALS - 1)
    return intervals
