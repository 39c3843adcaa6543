"""What a report is about: a bundle beside its source, both read and found to belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from privbench_core.backends.integrity import check_rows
from privbench_core.backends.registry import open_source
from privbench_core.errors import PublishError
from privbench_core.evaluate.encode import Coded, encode_tables
from privbench_core.evaluate.joins import Linked, link_tables
from privbench_core.publish.bundle import Bundle, is_bundle, read_bundle
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import Spec

_NAMED = 3  # differences between spec and bundle that an error names


@dataclass(frozen=True)
class Subject:
    """What a report is about.

    Attributes:
        database: Name of the database.
        bundle: Name of the bundle's folder.
        receipt: What the bundle's manifest says about privacy.
    """

    database: str
    bundle: str
    receipt: Mapping[str, Any]

    @property
    def promise(self) -> tuple[float, float] | None:
        """(ε, δ) for adding or removing one unit, None if the manifest does not say."""
        promise = self.receipt.get("guarantee", {}).get("add_or_remove_one_unit")
        return (float(promise["epsilon"]), float(promise["delta"])) if promise else None

    @property
    def guarantee(self) -> str:
        """The promise in words; empty if there is none."""
        if self.promise is None:
            return ""
        return f"ε={self.promise[0]:g}, δ={self.promise[1]:g} for adding or removing one unit"

    @property
    def scale(self) -> float:
        """Size of the bundle relative to the source."""
        return float(self.receipt.get("sampling", {}).get("scale", 1.0))

    @property
    def synthesizer(self) -> str | None:
        """Name of the synthesizer, None if the manifest does not say."""
        name = self.receipt.get("software", {}).get("synthesizer")
        return None if name is None else str(name)


@dataclass(frozen=True)
class TablesSideBySide:
    """Source and synthetic database, as rows and as codes in the same cells."""

    schema: Schema
    source: Mapping[str, pa.Table]
    synthetic: Mapping[str, pa.Table]

    @cached_property
    def coded(self) -> tuple[dict[str, Coded], dict[str, Coded]]:
        """Codes by table, of the source and of the synthetic database."""
        return (
            encode_tables(self.schema, self.source),
            encode_tables(self.schema, self.synthetic, self.source),
        )

    @property
    def foreign_keys(self) -> tuple[ForeignKey, ...]:
        """Keys of private tables; those of public tables are published as they are."""
        return tuple(key for table in self.schema.private_tables for key in table.foreign_keys)

    def linked(self, key: ForeignKey) -> tuple[Linked, Linked]:
        """The join along ``key`` in the source and in the synthetic database."""
        return link_tables(key, self.source, self.coded[0]), link_tables(key, self.synthetic, self.coded[1])


@dataclass(frozen=True)
class Subjects:
    """A bundle beside its source.

    Attributes:
        about: What the bundle says of itself.
        pair: Both sets of rows.
        papers: Texts of the bundle's files that are not data, by name.
    """

    about: Subject
    pair: TablesSideBySide
    papers: Mapping[str, str]


def read_both(spec: Spec, folder: Path) -> Subjects:
    """The rows of the source, checked as a run checks them, and those of the bundle.

    Raises:
        PublishError: The bundle is damaged, or of another schema than the spec's.
        SourceError: The source cannot be read or breaks what the spec declares.
    """
    bundle = read_bundle(folder)
    _same_schema(spec.schema, bundle)
    synthetic = {table.name: bundle.table(table.name) for table in spec.schema.tables}
    source = open_source(spec)
    rows = check_rows(spec.schema, {t.name: source.read(t) for t in spec.schema.tables}, spec.orphans)
    about = subject_of(folder.resolve().name, bundle.manifest)
    papers = {name: (bundle.path / name).read_text(encoding="utf-8") for name in bundle.manifest["files"]}
    return Subjects(about, TablesSideBySide(spec.schema, rows, synthetic), papers)


def subject_of(bundle: str, manifest: Mapping[str, Any]) -> Subject:
    """Read from a bundle's manifest what the report is about."""
    return Subject(str(manifest.get("database", "")), bundle, manifest.get("privacy", {}))


def keep_apart(out: Path) -> None:
    """Refuse a folder inside of a bundle: internal figures must not be given away with it."""
    place = out.resolve()
    for folder in (place, *place.parents):
        if is_bundle(folder):
            raise PublishError(
                f"{out}: is inside the bundle {folder.name}, but the report is internal; choose another --out"
            )


def _same_schema(schema: Schema, bundle: Bundle) -> None:
    """PublishError naming what differs, unless the bundle was made from this schema."""
    found = []
    tables = bundle.manifest["tables"]
    for table in schema.tables:
        if table.name not in tables:
            found.append(f"table {table.name} is missing")
            continue
        types = {column["name"]: column["type"] for column in tables[table.name]["columns"]}
        for column in table.columns:
            if column.name not in types:
                found.append(f"{table.name}.{column.name} is missing")
            elif types[column.name] != column.type:
                there, here = types[column.name], column.type
                found.append(f"{table.name}.{column.name} is {there} there and {here} in the spec")
    if found:
        more = f" (and {len(found) - _NAMED} more)" if len(found) > _NAMED else ""
        raise PublishError(
            f"{bundle.path}: was made from another schema ({bundle.manifest['database']}), for"
            f" {'; '.join(found[:_NAMED])}{more}; use the spec it was made from"
        )
