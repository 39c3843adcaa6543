"""Measure how close a synthetic database is to its source. Everything here reads private rows, for the owner only.

The figures are not differentially private: similarity metrics let an attacker reconstruct outliers. They belong in
internal reports, never in a published bundle.

Here are the inputs: a bundle and its source, checked to have the same schema, and the shuffled source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from privbench_core.backends.integrity import check_rows
from privbench_core.backends.registry import open_source
from privbench_core.errors import PublishError, first_of
from privbench_core.evaluation.joins import LinkedTables, link_tables
from privbench_core.evaluation.marginals import EncodedTable, encode_tables
from privbench_core.publishing import Bundle, is_bundle, read_bundle
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import Spec


class BundleSummary(NamedTuple):
    """What the manifest of a bundle says about it: the database, the bundle's folder, and the privacy receipt."""

    database: str
    bundle: str
    receipt: Mapping[str, Any]

    @property
    def guarantee(self) -> tuple[float, float] | None:
        """(ε, δ) for adding or removing one unit, None if the manifest does not say."""
        stated = self.receipt.get("guarantee", {}).get("add_or_remove_one_unit")
        return (float(stated["epsilon"]), float(stated["delta"])) if stated else None

    @property
    def guarantee_in_words(self) -> str:
        """The guarantee in words; empty if there is none."""
        if self.guarantee is None:
            return ""
        return f"ε={self.guarantee[0]:g}, δ={self.guarantee[1]:g} for adding or removing one unit"

    @property
    def scale(self) -> float:
        """Size of the bundle relative to the source."""
        return float(self.receipt.get("sampling", {}).get("scale", 1.0))

    @property
    def synthesizer(self) -> str | None:
        """Name of the synthesizer, None if the manifest does not say."""
        name: str | None = self.receipt.get("software", {}).get("synthesizer")
        return name


@dataclass(frozen=True)
class DatabasePair:
    """Source and synthetic database, as rows and as codes of the same domains."""

    schema: Schema
    source: Mapping[str, pa.Table]
    synthetic: Mapping[str, pa.Table]

    @cached_property
    def encoded(self) -> tuple[dict[str, EncodedTable], dict[str, EncodedTable]]:
        """Codes by table, of the source and of the synthetic database."""
        return encode_tables(self.schema, self.source), encode_tables(self.schema, self.synthetic, self.source)

    @property
    def foreign_keys(self) -> tuple[ForeignKey, ...]:
        """Keys of private tables; public tables are published unchanged."""
        return tuple(key for table in self.schema.private_tables for key in table.foreign_keys)

    def linked(self, key: ForeignKey) -> tuple[LinkedTables, LinkedTables]:
        """Return the join along ``key`` in the source and in the synthetic database."""
        return link_tables((key,), self.source, self.encoded[0]), link_tables((key,), self.synthetic, self.encoded[1])


class BundleAndSource(NamedTuple):
    """What the manifest says about a bundle, both sets of rows, and the texts of the bundle's other files by name."""

    summary: BundleSummary
    pair: DatabasePair
    documents: Mapping[str, str]


def read_bundle_and_source(spec: Spec, folder: Path) -> BundleAndSource:
    """Read the rows of the source, checked as a run checks them, and those of the bundle.

    Raises:
        PublishError: The bundle is damaged, or its schema is not the spec's.
        SourceError: The source cannot be read or breaks what the spec declares.
    """
    bundle = read_bundle(folder)
    _same_schema(spec.schema, bundle)
    synthetic = {table.name: bundle.table(table.name) for table in spec.schema.tables}
    source = open_source(spec, b"")  # numbers of rows are not compared
    rows = check_rows(spec.schema, {t.name: source.read(t) for t in spec.schema.tables}, spec.orphans)
    summary = summarize_bundle(folder.resolve().name, bundle.manifest)
    texts = [name for name in bundle.manifest["files"] if not name.startswith("data/")]  # where the tables are
    documents = {name: (bundle.path / name).read_text(encoding="utf-8") for name in texts}
    return BundleAndSource(summary, DatabasePair(spec.schema, rows, synthetic), documents)


def summarize_bundle(bundle: str, manifest: Mapping[str, Any]) -> BundleSummary:
    """Return what a bundle's manifest says about it."""
    return BundleSummary(str(manifest.get("database", "")), bundle, manifest.get("privacy", {}))


def shuffled_reference(schema: Schema, tables: Mapping[str, pa.Table], seed: int) -> dict[str, pa.Table]:
    """Return the rows with the columns of each private table permuted independently of each other.

    A foreign key moves as a whole. Columns of primary keys stay, so that those stay unique: all else moves against
    them. One-way marginals, numbers of rows, fanouts and popularity are the source's, and nothing else is. Not private.
    """
    rng = np.random.default_rng(seed)
    result = dict(tables)
    for table in schema.private_tables:
        rows = tables[table.name]
        orders = {column.name: rng.permutation(rows.num_rows) for column in table.attributes}
        fixed = set(table.primary_key)
        for key in table.foreign_keys:
            if fixed.isdisjoint(key.columns):
                orders |= dict.fromkeys(key.columns, rng.permutation(rows.num_rows))
        columns = [rows[n].take(pa.array(orders[n])) if n in orders else rows[n] for n in rows.column_names]
        result[table.name] = pa.table(dict(zip(rows.column_names, columns, strict=True)))
    return result


def refuse_inside_bundle(out: Path) -> None:
    """Raise PublishError if ``out`` is inside a bundle: internal figures must not be published with it."""
    for folder in (out.resolve(), *out.resolve().parents):
        if is_bundle(folder):
            raise PublishError(
                f"{out}: is inside the bundle {folder.name}, but the report is internal; choose another --out"
            )


def _same_schema(schema: Schema, bundle: Bundle) -> None:
    """Raise PublishError naming the differences, unless the bundle has this schema."""
    found, tables = [], bundle.manifest["tables"]
    for table in schema.tables:
        if table.name not in tables:
            found.append(f"table {table.name} is missing")
            continue
        types = {column["name"]: column["type"] for column in tables[table.name]["columns"]}
        for column in table.columns:
            here, there = str(column.logical), types.get(column.name)
            if there is None:
                found.append(f"{table.name}.{column.name} is missing")
            elif there != here:
                found.append(f"{table.name}.{column.name} is {there} in the bundle and {here} in the spec")
    if found:
        raise PublishError(
            f"{bundle.path}: was made from another schema ({bundle.manifest['database']}):"
            f" {first_of(found, 3, '; ')}; use the spec it was made from"
        )
