"""Runs plans: the workspace that holds ledger and releases, and the runner that pays for a step once.

Here are the plans of a spec, and what runs of them are called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from privbench_core.errors import SpecError
from privbench_core.files import file_name
from privbench_core.pipeline.workspace import epsilon_name
from privbench_core.privacy.budget import Budget
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.contract import Plan, load_synthesizer

if TYPE_CHECKING:
    from privbench_core.workload import Workload


def run_name(epsilon: float) -> str:
    """Return the name of a run in the ledger, the same for each front end.

    >>> run_name(2.0)
    'epsilon=2'
    """
    return f"epsilon={epsilon_name(epsilon)}"


def plan_for(spec: Spec, epsilon: float, *, delta: float | None = None, synthesizer: str | None = None) -> Plan:
    """Return the plan of a spec at one ε, without reading a row; see `privbench_core.plan`.

    Raises:
        SpecError: There is no such ε, synthesizer or option.
        SourceError: The workload cannot be read.
    """
    name = synthesizer or spec.synthesizer
    options: Mapping[str, Any] = spec.options if name == spec.synthesizer else {}
    if not epsilon > 0:
        raise SpecError(f"epsilon: {epsilon} is not positive; give the ε this run may spend, say 0.8")
    budget = Budget(epsilon, spec.delta if delta is None else delta)
    return load_synthesizer(name).plan(steered_schema(spec), budget, options)


def refuse_undeclared(spec: Spec, epsilon: float) -> None:
    """Refuse an ε that the spec does not list: recipients rely on its list, and a slip of the keyboard is paid for.

    Raises:
        SpecError: It is not listed; what is no ε at all is left to `plan_for`.
    """
    if epsilon not in spec.epsilons and 0 < epsilon < math.inf:
        listed = ", ".join(f"{listed:g}" for listed in spec.epsilons)
        todo = "add it there, or pass --undeclared-epsilon (to privbench_core.run: undeclared_epsilon=True)"
        raise SpecError(f"epsilon {epsilon:g}: the spec lists epsilons: [{listed}]; {todo}")


def plans_for(spec: Spec) -> dict[str, Plan]:
    """Return the plan of each ε of a spec, by the name that files and partitions have."""
    return {epsilon_name(epsilon): plan_for(spec, epsilon) for epsilon in spec.epsilons}


def public_workload(spec: Spec) -> dict[str, Workload]:
    """Return the queries that a spec has published, by the name that they get in a bundle; empty if it declares none.

    They are read before anything is spent.

    Raises:
        SourceError: The file cannot be read, or holds no queries.
    """
    if spec.workload is None:
        return {}
    from privbench_core.workload import read_workload  # brings in sqlglot, for those who have a workload

    workload = read_workload(spec.workload)
    return {file_name(spec.workload.stem): replace(workload, hide_literals=spec.literals == "hide")}


def steered_schema(spec: Spec) -> Schema:
    """Return the schema of a spec with what its published queries touch; as it is where they touch nothing.

    Raises:
        SourceError: As `public_workload`.
    """
    for workload in public_workload(spec).values():
        from privbench_core.workload.engine import queried_by

        queried = queried_by(workload, spec.schema)
        return replace(spec.schema, queried=queried if queried.tables else None)
    return spec.schema
