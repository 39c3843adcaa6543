"""Differentially private benchmarks from private relational databases. No orchestrator in here.

The names of this module are the public API. They are imported when they are first used, so ``import privbench_core``
loads neither Arrow nor pandas.

A program reads a spec, looks at what a release would cost, and runs it:

>>> import privbench_core as privbench
>>> from privbench_core.commands.demo import find_example
>>> spec = privbench.load_spec(find_example() / "spec.yaml")
>>> plan = privbench.plan(spec, epsilon=0.8)  # reads no row
>>> plan.budget
Budget(epsilon=0.8, delta=1e-09)
>>> [step.table for step in plan.steps if step.kind is privbench.StepKind.PROFILE]
['household', 'person']
>>> sum(step.price.rho for step in plan.steps) <= plan.budget.total().rho * (1 + 1e-9)
True

Every mistake is a `PrivbenchError` that says what was found and what to do:

>>> privbench.plan(spec, epsilon=0.8, synthesizer="privbanch")
Traceback (most recent call last):
...
privbench_core.errors.SpecError: synthesizer 'privbanch': not installed; did you mean 'privbench'?

``docs/library.md`` goes on with `run`, `read_bundle`, `evaluate`, `certify`, `publish`, and a complete synthesizer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from privbench_core.errors import (
    BudgetError,
    BudgetExhaustedError,
    BusyError,
    InternalError,
    LedgerError,
    NoiseOnlyError,
    OutOfMemoryError,
    PrivbenchError,
    PublishError,
    ReleaseError,
    SourceChangedError,
    SourceError,
    SpecError,
    UnsupportedBudgetError,
    ValidationError,
)
from privbench_core.version import __version__

if TYPE_CHECKING:
    from privbench_core.api import (
        append,
        certify,
        error_bars,
        evaluate,
        plan,
        publish,
        replicate,
        run,
    )
    from privbench_core.backends import Loaded
    from privbench_core.continuation.append import Appended
    from privbench_core.evaluation.evaluation import Certificate, Evaluation
    from privbench_core.explain import Explanation, explain_plans
    from privbench_core.explain.check import CheckResult, check
    from privbench_core.explain.error_bars import ErrorBars
    from privbench_core.pipeline.executor import RunResult
    from privbench_core.privacy.budget import Budget, Measure, Price
    from privbench_core.privacy.curator import Curator, Measurement
    from privbench_core.privacy.features import (
        CoMember,
        OfParent,
        Own,
        OwnDifference,
        OwnerDifference,
        OwnerFanout,
        OwnFanout,
        ParentFanout,
        ParentRow,
    )
    from privbench_core.privacy.queries import Distances, Marginal
    from privbench_core.privacy.session import Discovered, PrivateSession
    from privbench_core.privacy.views import ViewSpec
    from privbench_core.publishing import Bundle, read_bundle
    from privbench_core.schema.columns import Column
    from privbench_core.schema.constraints import ForeignKey
    from privbench_core.schema.tables import Schema, Table
    from privbench_core.spec.load import load_spec
    from privbench_core.spec.model import Spec
    from privbench_core.synthesizers.artifact import Artifact
    from privbench_core.synthesizers.contract import Plan, Step, StepContext, StepKind, Synthesizer

__all__ = [
    "Appended", "Artifact", "Budget", "BudgetError", "BudgetExhaustedError", "Bundle", "BusyError", "Certificate",
    "CheckResult", "CoMember", "Column", "Curator", "Discovered", "Distances", "ErrorBars", "Evaluation",
    "Explanation", "ForeignKey", "InternalError", "LedgerError", "Loaded", "Marginal", "Measure", "Measurement",
    "NoiseOnlyError", "OfParent", "OutOfMemoryError", "Own", "OwnDifference", "OwnFanout", "OwnerDifference",
    "OwnerFanout", "ParentFanout", "ParentRow", "Plan", "Price", "PrivateSession", "PrivbenchError", "PublishError",
    "ReleaseError", "RunResult", "Schema", "SourceChangedError", "SourceError", "Spec", "SpecError", "Step",
    "StepContext", "StepKind", "Synthesizer", "Table", "UnsupportedBudgetError", "ValidationError", "ViewSpec",
    "__version__", "append", "certify", "check", "error_bars", "evaluate", "explain_plans", "load_spec", "plan",
    "publish", "read_bundle", "replicate", "run",
]  # fmt: skip

_NAMES = {
    "api": ("append", "certify", "error_bars", "evaluate", "plan", "publish", "replicate", "run"),
    "backends": ("Loaded",),
    "continuation.append": ("Appended",),
    "evaluation.evaluation": ("Certificate", "Evaluation"),
    "explain.check": ("CheckResult", "check"),
    "explain": ("Explanation", "explain_plans"),
    "pipeline.executor": ("RunResult",),
    "privacy.budget": ("Budget", "Measure", "Price"),
    "privacy.curator": ("Curator", "Measurement"),
    "privacy.features": (
        "CoMember", "OfParent", "Own", "OwnDifference", "OwnFanout", "OwnerDifference", "OwnerFanout", "ParentFanout",
        "ParentRow",
    ),
    "privacy.queries": ("Distances", "Marginal"),
    "privacy.session": ("Discovered", "PrivateSession"),
    "privacy.views": ("ViewSpec",),
    "publishing": ("Bundle", "read_bundle"),
    "explain.error_bars": ("ErrorBars",),
    "schema.columns": ("Column",),
    "schema.constraints": ("ForeignKey",),
    "schema.tables": ("Schema", "Table"),
    "spec.load": ("load_spec",),
    "spec.model": ("Spec",),
    "synthesizers.artifact": ("Artifact",),
    "synthesizers.contract": ("Plan", "Step", "StepContext", "StepKind", "Synthesizer"),
}  # fmt: skip
"""The names that each module of this package defines."""

_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
