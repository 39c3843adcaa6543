"""The bundled example with fewer rows, for tests that are not about its size."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from privbench_core.commands.demo import find_example


def part_of_the_example(folder: Path, households: int) -> None:
    """Copy the example's spec into ``folder``, and its first ``households`` with their persons."""
    example = find_example()
    shutil.copyfile(example / "spec.yaml", folder / "spec.yaml")
    household, person = (pq.read_table(example / f"{name}.parquet") for name in ("household", "person"))
    household = household.slice(0, households)
    person = person.filter(pc.is_in(person.column("household_id"), household.column("HHID").combine_chunks()))
    pq.write_table(household, folder / "household.parquet")
    pq.write_table(person, folder / "person.parquet")
