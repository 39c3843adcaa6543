"""The public API: its names are pinned, typed as they are found, and cheap to import."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path

import pytest

import privbench_core
from privbench_core.errors import PrivbenchError

FUNCTIONS = [
    "append", "certify", "check", "error_bars", "evaluate", "explain_plans", "load_spec", "plan", "publish",
    "read_bundle", "replicate", "run",
]  # fmt: skip
ERRORS = [
    "BudgetError", "BudgetExhaustedError", "BusyError", "InternalError", "LedgerError", "NoiseOnlyError",
    "OutOfMemoryError", "PrivbenchError", "PublishError", "ReleaseError", "SourceChangedError", "SourceError",
    "SpecError", "UnsupportedBudgetError", "ValidationError",
]  # fmt: skip
RESULTS = [
    "Appended", "Bundle", "Certificate", "CheckResult", "ErrorBars", "Evaluation", "Explanation", "Loaded", "RunResult",
    "Spec",
]  # fmt: skip
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


@pytest.mark.usefixtures("fake")
def test_a_path_stands_for_a_spec_and_what_is_returned_prints_as_one_line(town_spec: Path, tmp_path: Path):
    out = str(tmp_path / "bundle")
    result, again = (privbench_core.run(path, 0.8, out=out) for path in (str(town_spec), town_spec))
    spec, bundle = privbench_core.load_spec(town_spec), privbench_core.read_bundle(out)
    plan = privbench_core.plan(str(town_spec), 0.8)
    rows = sum(bundle.table(name).num_rows for name in bundle.tables)
    about = "2 private and 0 public tables; unit household; ε=0.8, 3.2 at δ=1e-09, lifetime ε=20"
    assert [repr(each) for each in (spec, plan, plan.steps[0], result, again, bundle)] == [
        f"<Spec of town: {about}; synthesizer privbench>",
        f"<Plan by fake at ε=0.8, δ=1e-09: 9 steps, 4 of them paid; {plan.price}>",
        f"<Step profile/household: {plan.steps[0].price}, reads household>",
        f"<RunResult at ε=0.8: paid {plan.price}; bundle in {out}>",
        f"<RunResult at ε=0.8: nothing paid, all bought before; bundle in {out}>",
        f"<Bundle of town in {out}: 2 tables, {rows:,} rows; ε=0.8, δ=1e-09>",
    ]
    assert str(town_spec.parent) not in repr(spec), "the source may hold a password"


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("load_spec", {"path": None}, "spec: expected a path, as text or as a Path, not NoneType"),
        ("plan", {"spec": {"database": "secret"}}, "spec: expected .* not dict"),
        ("plan", {"epsilon": "secret"}, "epsilon: expected a number, not str"),
        ("run", {"seed": None, "workers": 1.5}, "seed: expected a whole number, not NoneType\nworkers: .* not float"),
        ("run", {"out": None}, "out: expected a path"),
        ("run", {"out": "spec.yaml"}, r"spec\.yaml: exists already and is not a bundle"),
        ("run", {"spec": "missing.yaml"}, r"missing\.yaml: cannot be read"),
        ("evaluate", {"bundle": 3}, "bundle: expected a path"),
        ("evaluate", {}, "bundle: not a bundle"),
        ("certify", {"thresholds": {"same_paln": 1}}, "same_paln: no such threshold; did you mean 'same_plan'?"),
        ("certify", {"workload": 3}, "workload: expected a path"),
        ("explain_plans", {}, "bundle: not a bundle"),
        ("publish", {"bundle": None}, "bundle: expected a path"),
        ("publish", {"target_url": 3}, "target_url: expected a path"),
        ("read_bundle", {"path": ["secret"]}, "bundle: expected a path, .* not list"),
    ],
)
@pytest.mark.usefixtures("fake")
def test_arguments_of_another_type_are_refused_by_name_before_anything_is_opened_and_not_repeated(
    name: str, given: dict[str, object], said: str, town_spec: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(town_spec.parent)
    called = getattr(privbench_core, name)
    usual = {
        "path": "spec.yaml",
        "spec": "spec.yaml",
        "epsilon": 0.8,
        "out": "b",
        "bundle": "bundle",
        "target_url": "x",
    }
    needed = [p.name for p in signature(called).parameters.values() if p.default is p.empty]
    with pytest.raises(PrivbenchError, match=said) as refused:
        called(**{argument: usual[argument] for argument in needed} | given)
    assert type(refused.value) is not PrivbenchError
    assert "secret" not in str(refused.value)
    assert not (town_spec.parent / ".privbench").exists()
