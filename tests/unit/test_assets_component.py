"""The component: a defs.yaml that names a spec gives what build_defs gives."""

from __future__ import annotations

import shutil
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from privbench_assets.build import build_defs
from privbench_assets.component import Benchmark


@pytest.mark.usefixtures("fake")
def test_a_component_defines_its_database(town_spec: Path) -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            Benchmark,
            defs_path="town",
            defs_yaml_contents={"type": "privbench_assets.component.Benchmark", "attributes": {"spec": "spec.yaml"}},
        )
        shutil.copytree(town_spec.parent, path, dirs_exist_ok=True)
        with sandbox.load_component_and_build_defs(defs_path="town") as (component, defs):
            assert isinstance(component, Benchmark)
            assert names(defs) == names(build_defs(town_spec))
            assert {job.name for job in defs.jobs or []} == {"town_refresh", "town_observe"}


def names(defs: dg.Definitions) -> set[str]:
    return {spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()}
