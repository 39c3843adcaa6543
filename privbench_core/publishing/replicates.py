"""Replicates in a bundle: the rows that its plan makes of the bundle's own rows, for error bars (`error_bars`).

    replicates/<number>/<table>.parquet     of the private tables; the public ones are the bundle's

The manifest lists them, with checksums, under ``replicates``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from privbench_core.errors import PublishError
from privbench_core.files import file_name, replace_folder
from privbench_core.publishing.bundle import MANIFEST, README, Bundle, is_bundle
from privbench_core.publishing.table_files import file_digest, write_table
from privbench_core.publishing.texts import with_replicates

_FOLDER = "replicates"
Distances = Mapping[str, Mapping[str, float]]
"""Mean fidelity figures of replicates, of how far they are from the bundle, by table and metric."""


def add_replicates(
    bundle: Bundle, replicates: Iterable[Mapping[str, pa.Table]], distances: Callable[[], Distances]
) -> None:
    """Write a bundle anew with replicates, whole or not at all.

    Args:
        bundle: The bundle.
        replicates: Rows by table of each; they are read once.
        distances: Is called after that.

    Raises:
        PublishError: The bundle cannot be written (disk full); it is then unchanged.
    """

    def write(folder: Path) -> None:
        copytree(bundle.path, folder, dirs_exist_ok=True, ignore=ignore_patterns(_FOLDER, MANIFEST))
        listed: list[dict[str, Any]] = []
        for number, rows in enumerate(replicates, start=1):
            (folder / _FOLDER / str(number)).mkdir(parents=True)
            listed.append({})
            for table in bundle.schema.private_tables:
                name = f"{_FOLDER}/{number}/{file_name(table.name)}.parquet"
                write_table(folder / name, table, rows[table.name])
                listed[-1][table.name] = {"file": name, "sha256": file_digest(folder / name)}
        readme = with_replicates((folder / README).read_text(encoding="utf-8"), len(listed))
        (folder / README).write_text(readme, encoding="utf-8")
        files = {**bundle.manifest["files"], README: {"sha256": file_digest(folder / README)}}
        manifest = {**bundle.manifest, "files": files, "replicates": {"distances": distances(), "tables": listed}}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    replace_folder(bundle.path, write, replaceable=is_bundle)


def read_replicates(bundle: Bundle) -> tuple[list[dict[str, Path]], Distances]:
    """Return the Parquet files of each replicate by private table, and how far they are from the bundle.

    Raises:
        PublishError: The bundle has no replicates.
    """
    found = bundle.manifest.get("replicates")
    if found is None:
        raise PublishError(
            f"{bundle.path}: has no replicates, which error bars are made from. Anyone with its spec can add them,"
            " without the source and at no budget: privbench replicate SPEC BUNDLE"
        )
    files = [{name: bundle.path / entry["file"] for name, entry in listed.items()} for listed in found["tables"]]
    return files, found["distances"]


def read_rows(bundle: Bundle, replicate: Mapping[str, Path]) -> dict[str, pa.Table]:
    """Return the rows of all tables of a replicate."""
    return {
        name: pq.ParquetFile(replicate[name]).read() if name in replicate else bundle.table(name)
        for name in bundle.tables
    }
