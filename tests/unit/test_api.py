"""The public API: its names are pinned, typed as they are found, and cheap to import."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import privbench_core
from privbench_core.errors import PrivbenchError

FUNCTIONS = ["evaluate", "load_spec", "plan", "publish", "read_bundle", "run"]
ERRORS = [
    "BudgetError", "BudgetExhaustedError", "BusyError", "InternalError", "LedgerError", "NoiseOnlyError",
    "OutOfMemoryError", "PrivbenchError", "PublishError", "ReleaseError", "SourceChangedError", "SourceError",
    "SpecError", "UnsupportedBudgetError", "ValidationError",
]  # fmt: skip
RESULTS = ["Bundle", "Evaluation", "Loaded", "RunResult", "Spec"]
SYNTHESIZERS = [
    "Artifact", "Budget", "CoMember", "Column", "Curator", "Discovered", "Distances", "ForeignKey", "Marginal",
    "Measure", "Measurement", "OfParent", "Own", "OwnFanout", "OwnDifference", "OwnerDifference", "OwnerFanout",
    "ParentRow", "Plan", "Price", "PrivateSession", "Schema", "ParentFanout", "Step", "StepContext", "StepKind",
    "Synthesizer", "Table", "ViewSpec",
]  # fmt: skip
HEAVY = {"dagster", "duckdb", "great_expectations", "matplotlib", "numpy", "opendp", "pandas", "pyarrow", "sqlalchemy"}
PACKAGE = Path(privbench_core.__file__).parent


def in_new_process(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_names_are_pinned():
    """Adding a name is a minor version, removing one a major version: say so in the changelog."""
    assert sorted(privbench_core.__all__) == sorted([*FUNCTIONS, *ERRORS, *RESULTS, *SYNTHESIZERS, "__version__"])
    assert dir(privbench_core) == sorted(privbench_core.__all__)


@pytest.mark.parametrize("name", privbench_core.__all__)
def test_every_name_is_there_and_documented(name: str):
    found = getattr(privbench_core, name)
    assert name == "__version__" or found.__doc__
    assert callable(found) == (name != "__version__")


def test_type_checkers_see_what_programs_get():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.asname or alias.name: (statement.module, alias.name)
        for statement in guarded.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    for name, (module, there) in seen.items():
        assert getattr(privbench_core, name) is getattr(sys.modules[module], there), name
    assert set(seen) | set(ERRORS) | {"__version__"} == set(privbench_core.__all__)
    assert (PACKAGE / "py.typed").exists()


def test_the_version_is_that_of_the_distribution():
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert privbench_core.__version__ == project["version"]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'synthesise'"):
        privbench_core.synthesise  # noqa: B018  # the access is what is tested


def test_importing_loads_nothing_heavy():
    loaded = in_new_process("import sys, privbench_core; print(' '.join(sys.modules))").split()
    assert HEAVY.isdisjoint(loaded)
    assert {each for each in loaded if each.startswith("privbench")} == {
        "privbench_core",
        "privbench_core.errors",
        "privbench_core.version",
    }


def test_every_error_is_a_privbench_error():
    assert all(issubclass(getattr(privbench_core, name), PrivbenchError) for name in ERRORS)
