"""Every name that is imported is there, also within functions that no test calls; light commands import little."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("privbench_core", "privbench_assets")
HEAVY = (
    "adbc_driver_manager",
    "dagster",
    "duckdb",
    "faker",
    "great_expectations",
    "jinja2",
    "matplotlib",
    "networkx",
    "opendp",
    "pandas",
    "psycopg",
    "pyarrow.dataset",
    "scipy.integrate",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.special",
    "scipy.stats",
    "sqlalchemy",
    "sqlglot",
)
IMPORTED = f"""
import json, sys
from privbench_core.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        print(arguments[0], end.code, *sorted({set(HEAVY)!r} & set(sys.modules)), file=sys.stderr)
"""
IMPORTING = ("privbench_core", "privbench_assets", "tests", "benchmarks", "docs", "examples")


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of each import from the packages; the name is "" where the module itself is imported."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PACKAGES):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith(PACKAGES))


def is_there(module: str, name: str) -> bool:
    """Whether a module has a name, or a submodule of that name."""
    if name in {"", "*"} or hasattr(import_module(module), name):
        return True
    try:
        import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


@pytest.mark.parametrize("folder", IMPORTING)
def test_whatever_is_imported_from_the_packages_is_there(folder: str) -> None:
    files = sorted((PROJECT / folder).rglob("*.py"))
    named = {(path, *found) for path in files for found in imported(path)}
    gone = [
        f"{path.relative_to(PROJECT)}: {module}.{name}" for path, module, name in named if not is_there(module, name)
    ]
    assert not gone, "\n".join(sorted(gone))


def loaded_by(*commands: list[str], before: str = "") -> list[str]:
    """Of each command that one process runs in turn: its name, its exit code, and what heavy libraries are loaded."""
    code = [sys.executable, "-c", f"{before}\n{IMPORTED}", json.dumps(commands)]
    return subprocess.run(code, cwd=PROJECT, capture_output=True, text=True, check=True).stderr.splitlines()


def test_commands_that_count_nothing_import_no_library_for_counting(town_spec: Path) -> None:
    spec = str(town_spec)
    init = ["init", str(town_spec.parent), "-o", str(town_spec.parent / "drafted.yaml"), "--unit", "household"]
    found = loaded_by(init, ["ledger", spec], ["status", spec], ["refresh", spec, "--dry-run"], ["plan", spec])
    assert found == ["init 0", "ledger 0", "status 0", "refresh 0", "plan 0 duckdb"]  # which tries the schema


def test_a_heavy_library_is_seen() -> None:
    assert loaded_by(["--help"], before="import pandas") == ["--help 0 pandas"]


def test_in_the_rooms_of_marginals_and_keys_only_what_measures_may_spend():
    core = PROJECT / "privbench_core"
    spends = ("privbench_core.privacy.curator", "privbench_core.privacy.session")
    found = {
        (path.relative_to(core).as_posix(), module)
        for room in ("marginals", "units", "profiles", "links", "groups")
        for path in (core / room).glob("*.py")
        if not path.name.startswith("measure_")
        for module, name in imported(path)
        if f"{module}.{name}".startswith(spends)
    }
    assert not found
