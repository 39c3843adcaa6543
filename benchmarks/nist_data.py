"""NIST's ACS data excerpts (SDNist) as tables, declared as an owner would: by their published data dictionary.

Features with a minimum and a maximum there are whole numbers in that range; all others are lists of codes, and "N" (not
applicable) is NULL. Codes of PUMA and INDP are those of the excerpt's published schema file: SDNist leaves out
features with others. DENSITY is a public figure of each PUMA, so its values are those of the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from benchmarks.measure import Codes
from privbench_core.schema.columns import Column, ColumnType, Range, Values
from privbench_core.schema.tables import Table

EXCERPTS = {"national2019": "national", "ma2019": "massachusetts", "tx2019": "texas"}
"""Folders of the files, by SDNist's names for the excerpts."""

_DEMOGRAPHIC = ("AGEP", "SEX", "MSP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "EDU", "PINCP_DECILE", "DVET", "DEYE")
_CF21 = (*_DEMOGRAPHIC, "PUMA", "HISP", "NOC", "NPF", "INDP", "INDP_CAT", "PINCP", "POVPIP", "DREM", "DPHY", "DEAR")
SUBSETS: dict[str, tuple[str, ...]] = {
    "demographic": _DEMOGRAPHIC,
    "cf9": _DEMOGRAPHIC[:-1],
    "cf21": _CF21,
    "cf23": (*_CF21, "WGTP", "PWGTP"),
    "all": (*_CF21, "WGTP", "PWGTP", "DENSITY"),
}
"""Features of the published reports: demographic-focused, the same without DEYE, custom-features-21 and -23, all."""

_ABSENT = "N"
_KEY = "person"


@dataclass(frozen=True)
class Excerpt:
    """One excerpt.

    Attributes:
        folder: SDNist's folder ACSDataExcerpts.
        name: One of `EXCERPTS`.
    """

    folder: Path
    name: str

    @cached_property
    def texts(self) -> pa.Table:
        """Return every feature as the file has it."""
        path = self.folder / EXCERPTS[self.name] / f"{self.name}.csv"
        features = path.read_text(encoding="utf-8").partition("\n")[0].split(",")
        return csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=dict.fromkeys(features, pa.string())))

    def table(self, features: tuple[str, ...]) -> Table:
        """Declare a table of persons with these features."""
        columns = (self._column(feature) for feature in features)
        return Table("persons", (Column(_KEY, ColumnType.INTEGER), *columns), (_KEY,))

    def rows(self, features: tuple[str, ...]) -> pa.Table:
        """Return the rows of `table`."""
        columns = {}
        for feature in features:
            known = self.texts[feature]
            known = pc.if_else(pc.equal(known, _ABSENT), pa.scalar(None, pa.string()), known)
            whole = isinstance(self._column(feature).domain, Range)
            columns[feature] = known.cast(pa.float64()).cast(pa.int64()) if whole else known
        return pa.table({_KEY: np.arange(self.texts.num_rows), **columns})

    def codes(self, features: tuple[str, ...]) -> tuple[Codes, list[int]]:
        """Return codes of shape (rows, features), ages in intervals of five years, and the size of each domain."""
        codes, sizes = [], []
        for name in features:
            values = self._texts_of(name)
            codes.append(pc.index_in(self.texts[name], pa.array(values)).to_numpy().astype(np.int64) // _width(name))
            sizes.append(len(values) // _width(name))
        return np.stack(codes, axis=1), sizes

    def decode(self, features: tuple[str, ...], codes: Codes, rng: np.random.Generator) -> pa.Table:
        """Return the values of `codes` as the file writes them, ages uniform inside their interval."""
        columns = {}
        for name, column in zip(features, codes.T, strict=True):
            width = _width(name)
            places = column * width + rng.integers(0, width, len(column))
            columns[name] = pa.array(self._texts_of(name)).take(pa.array(places))
        return pa.table(columns)

    @cached_property
    def _schema(self) -> dict[str, dict[str, list[str | int]]]:
        path = self.folder / EXCERPTS[self.name] / f"{self.name}.json"
        schema: dict[str, dict[str, list[str | int]]] = json.loads(path.read_text(encoding="utf-8"))["schema"]
        return schema

    @cached_property
    def _dictionary(self) -> dict[str, dict[str, str | float]]:
        read = json.loads((self.folder / "data_dictionary.json").read_text(encoding="utf-8"))
        return {name: entry.get("values", {}) for name, entry in read.items()}

    def _column(self, feature: str) -> Column:
        declared = self._dictionary[feature]
        nullable = "has_null" in self._schema[feature]
        if feature == "DENSITY":
            values = pc.unique(self.texts[feature]).to_pylist()
        elif "min" in declared:
            numbers = [int(float(given)) for given in (declared["min"], declared["max"])]
            numbers += [int(code) for code in declared if code.isdigit()]  # 0 and 501 stand beside the range
            return Column(feature, ColumnType.INTEGER, Range(min(numbers), max(numbers)), nullable=nullable)
        else:
            values = self._schema[feature]["values"] if feature in {"PUMA", "INDP"} else list(declared)
        known = tuple(value for value in values if value != _ABSENT)
        return Column(feature, ColumnType.CATEGORY, Values(known), nullable=nullable)

    def _texts_of(self, feature: str) -> list[str]:
        column = self._column(feature)
        if isinstance(column.domain, Range):
            values = [str(number) for number in range(int(column.domain.low), int(column.domain.high) + 1)]
        else:
            values = list(map(str, column.domain.values)) if isinstance(column.domain, Values) else []
        return [_ABSENT, *values] if column.nullable else values


def _width(feature: str) -> int:
    """Return how many neighbouring values a code stands for."""
    return 5 if feature == "AGEP" else 1


def as_sdnist_reads(rows: pa.Table) -> pa.Table:
    """Return synthetic rows without their key, as text, with NULL as "N"."""
    kept = [name for name in rows.column_names if name != _KEY]
    return pa.table({name: pc.fill_null(rows[name].cast(pa.string()), _ABSENT) for name in kept})
