"""The spec: all decisions of the owner, and all public information."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privbench_core.schema.change import Change
from privbench_core.schema.tables import Schema
from privbench_core.spec.fidelity import FidelityPolicy
from privbench_core.spec.refresh import RefreshPolicy

DEFAULT_SYNTHESIZER = "privbench"
DEFAULT_ENGINE = "auto"
DEFAULT_STATE = ".privbench"


@dataclass(frozen=True)
class Spec:
    """A validated spec.

    Attributes:
        schema: Tables, keys, declared domains and the privacy unit.
        source: Absolute path of a folder or file, or a URL as written (``${VARIABLE}`` not yet expanded).
        path: The spec file.
        epsilons: ε of every release; all above 0.
        delta: δ of each release; 0 for pure ε-DP.
        lifetime_epsilon: The most that all releases together may ever spend.
        lifetime_delta: δ of the lifetime budget.
        synthesizer: Name of the synthesizer.
        options: Its parameters; public, so they must not depend on the data.
        state: Folder of the ledger and the releases.
        orphans: ``refuse`` or ``drop`` per `ForeignKey.name`.
        schedule: Cron expression of the refresh, or None.
        observe: Cron expression of the checks for changes of the source, or None.
        workload: Absolute path of a file of queries to publish with the data, or None. The owner declares their text
            public.
        refresh: How the lifetime budget is spread over refreshes; None sets no limit per refresh.
        cohort: Name of this set of units, declared disjoint from every other cohort and with a lifetime budget of its
            own; "" for a database with one population.
        owners: Owners of the benchmark, as Dagster shows them: e-mail addresses, or ``team:name``.
        changes: How a change of a table is detected, for tables whose content is not compared.
        ledger: URL of the PostgreSQL database that holds the ledger, as written; None for a file in ``state``.
        fidelity: How the published fidelity figures are judged.
        engine: Where private rows are counted, see `spec.engine`; releases do not depend on it.
        cluster: URL of the Spark Connect of the cluster that ``engine: spark`` counts in, as written; or None.
    """

    schema: Schema
    source: str = field(repr=False)  # may hold a password, and representations end in logs
    path: Path
    epsilons: tuple[float, ...]
    delta: float
    lifetime_epsilon: float
    lifetime_delta: float
    synthesizer: str = DEFAULT_SYNTHESIZER
    options: Mapping[str, Any] = field(default_factory=dict)
    state: Path = Path(DEFAULT_STATE)
    orphans: Mapping[str, str] = field(default_factory=dict)
    schedule: str | None = None
    observe: str | None = None
    workload: Path | None = None
    refresh: RefreshPolicy | None = None
    cohort: str = ""
    owners: tuple[str, ...] = ()
    changes: Mapping[str, Change] = field(default_factory=dict)
    ledger: str | None = field(default=None, repr=False)  # may hold a password
    fidelity: FidelityPolicy = field(default_factory=FidelityPolicy)
    engine: str = DEFAULT_ENGINE
    cluster: str | None = field(default=None, repr=False)  # may hold a token

    @property
    def accepting_noise(self) -> Spec:
        """The same spec, with a yes to steps of which released numbers show that they will be noise."""
        return replace(self, fidelity=replace(self.fidelity, accept_noise=True))
