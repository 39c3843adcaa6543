"""The spec: all decisions of the owner, and all public information.

A refresh policy spreads the lifetime budget over the refreshes of a benchmark; it is declared, so public. The ledger
numbers refreshes: number k begins when a step is bought for the k-th time at the same ε, so the first release is
refresh 1. A policy limits the total cost of refreshes 1 to k. What an earlier refresh did not use (one of a single
table costs less than one of all) stays available to later ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privbench_core.errors import SpecError, did_you_mean
from privbench_core.schema.tables import Schema
from privbench_core.spec.location import is_spark_url, is_url

DEFAULT_SYNTHESIZER = "privbench"
DEFAULT_ENGINE = "auto"
DEFAULT_STATE = ".privbench"
ENGINES = {
    DEFAULT_ENGINE: "spark for Spark catalogues, duckdb for Parquet files with many private rows, else memory",
    "memory": "all rows are read into this process",
    "duckdb": "private rows are copied into a temporary file of this machine and counted there, in little memory",
    "source": "private rows are counted in the source's own PostgreSQL, in temporary tables; counts travel, not rows",
    "spark": "private rows are copied to a Spark cluster's own executors and counted there; counts travel, not rows",
}


@dataclass(frozen=True)
class EqualRefreshes:
    """A fixed number of refreshes of equal cost.

    Attributes:
        epsilon: The most that one refresh may cost: all ε partitions together, at the lifetime's δ.
        times: Number of refreshes, the first release included.

    >>> EqualRefreshes(0.5, times=6).upto(2, 20.0, lambda epsilon: epsilon)
    1.0
    """

    epsilon: float
    times: int

    def upto(self, refresh: int, lifetime: float, worth: Callable[[float], float]) -> float:
        """Return the most that refreshes 1 to ``refresh`` may cost together.

        Args:
            refresh: Number of a refresh, from 1.
            lifetime: ε of the lifetime budget.
            worth: Converts an ε to the privacy measure of the answer: ε itself, or ρ.
        """
        return min(min(refresh, self.times) * worth(self.epsilon), worth(lifetime))

    def in_words(self) -> str:
        """Describe the policy for messages."""
        return f"ε={self.epsilon:g} for " + (f"each of {self.times} refreshes" if self.times > 1 else "one refresh")


@dataclass(frozen=True)
class DecayingRefreshes:
    """Refreshes whose limits decay geometrically, and add up to the lifetime budget.

    Attributes:
        decay: Ratio of consecutive limits, above 0 and below 1. With 0.5 the first refresh may take half of the budget,
            the second a quarter.

    >>> DecayingRefreshes(0.5).upto(2, 20.0, lambda epsilon: epsilon)
    15.0
    """

    decay: float
    times: None = None

    def upto(self, refresh: int, lifetime: float, worth: Callable[[float], float]) -> float:
        """Return the most that refreshes 1 to ``refresh`` may cost together, as `EqualRefreshes.upto`."""
        return worth(lifetime) * (1 - self.decay**refresh)

    def in_words(self) -> str:
        """Describe the policy for messages."""
        first = 1 - self.decay
        return f"{first:.3g} of the lifetime budget for the first refresh, {self.decay:g} times as much for each next"


RefreshPolicy = EqualRefreshes | DecayingRefreshes


@dataclass(frozen=True)
class Content:
    """All declared columns of all rows are compared: misses nothing, and reads the whole table."""


@dataclass(frozen=True)
class Watermark:
    """The number of rows and the largest value of a column are compared.

    Attributes:
        column: Of the source; the spec need not declare it. ``xmin`` is PostgreSQL's own mark on every row.
    """

    column: str


@dataclass(frozen=True)
class VersionQuery:
    """The one row that a query of the owner returns is compared.

    Attributes:
        sql: In the words of the source.
    """

    sql: str


Change = Content | Watermark | VersionQuery
"""How a table of the source is compared with what it was; what that finds is private, and hashed before it is shown."""


@dataclass(frozen=True)
class FidelityPolicy:
    """When published fidelity figures are bad enough to warn, and whether they stop a bundle: free to change.

    Attributes:
        block: Whether bad figures keep a bundle from being published; else they warn.
        accept_noise: Whether steps are bought of which released numbers show that they will be noise.
        one_way: Largest mean total variation distance of single columns. A quarter of the rows, as in an evaluation's
            "far" (`publishing.verdicts`).
        to_shuffled: Largest distance of pairs and joins, relative to that of shuffled columns.
    """

    block: bool = False
    accept_noise: bool = False
    one_way: float = 0.25
    to_shuffled: float = 1.0


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
        literals: What becomes of the constants of these queries: ``rebind``, or ``hide`` if they are not public.
        refresh: How the lifetime budget is spread over refreshes; None sets no limit per refresh.
        cohort: Name of this set of units, declared disjoint from every other cohort and with a lifetime budget of its
            own; "" for a database with one population.
        owners: Owners of the benchmark, as Dagster shows them: e-mail addresses, or ``team:name``.
        changes: How a change of a table is detected, for tables whose content is not compared.
        ledger: URL of the PostgreSQL database that holds the ledger, as written; None for a file in ``state``.
        fidelity: How the published fidelity figures are judged.
        engine: Where private rows are counted, see `ENGINES`; releases do not depend on it.
        cluster: URL of the Spark Connect of the cluster that ``engine: spark`` counts in, as written; or None.
    """

    schema: Schema
    source: str
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
    literals: str = "rebind"
    refresh: RefreshPolicy | None = None
    cohort: str = ""
    owners: tuple[str, ...] = ()
    changes: Mapping[str, Change] = field(default_factory=dict)
    ledger: str | None = None
    fidelity: FidelityPolicy = field(default_factory=FidelityPolicy)
    engine: str = DEFAULT_ENGINE
    cluster: str | None = None

    def __repr__(self) -> str:
        """Return it in one line, without source, ledger and cluster: they may hold passwords, and it ends in logs."""
        private, public = len(self.schema.private_tables), len(self.schema.tables) - len(self.schema.private_tables)
        epsilons = ", ".join(f"{epsilon:g}" for epsilon in self.epsilons)
        return (
            f"<Spec of {self.schema.name}: {private} private and {public} public tables; unit {self.schema.unit}; "
            f"ε={epsilons} at δ={self.delta:g}, lifetime ε={self.lifetime_epsilon:g}; synthesizer {self.synthesizer}>"
        )

    @property
    def accepting_noise(self) -> Spec:
        """The same spec, with a yes to steps of which released numbers show that they will be noise."""
        return replace(self, fidelity=replace(self.fidelity, accept_noise=True))


def with_engine(spec: Spec, engine: str | None) -> Spec:
    """Return the spec with another engine, if one is named; SpecError if it cannot count this spec's rows."""
    if engine is None:
        return spec
    problem = engine_problem(engine, spec.source, spec.cluster, spec.schema)
    if problem:
        raise SpecError("--engine: " + "; ".join(problem))
    return replace(spec, engine=engine)


def engine_in_words(spec: Spec) -> list[str]:
    """Return what the owner should know of the engine before a run, a sentence each."""
    lines = [f"Engine: {spec.engine}; {ENGINES[spec.engine]}."]
    private = [table.name for table in spec.schema.private_tables]
    compared = [name for name in private if isinstance(spec.changes.get(name, Content()), Content)]
    if spec.engine in {"source", "spark"} and compared:
        todo = " declare change: {watermark: ..} or {sql: ..} to leave them where they are."
        lines.append(
            f"Rows of {', '.join(compared)} still pass through this process once, to see whether they have changed"
            + (f";{todo}" if spec.engine == "source" or is_spark_url(spec.source) else ".")  # files have neither
        )
    return lines


def engine_problem(engine: str, source: str, cluster: str | None, schema: Schema) -> tuple[str, str] | None:
    """Return what is wrong and what to do, None if the engine can count these rows, as far as a spec tells."""
    if engine not in ENGINES:
        return f"there is no engine {engine!r}", did_you_mean(engine, ENGINES)
    if engine == "spark" and not is_spark_url(source):
        if cluster is None and not source.startswith("${"):
            return "engine spark needs a cluster", "add cluster: sc://host:port, the URL of its Spark Connect"
        if is_url(source):
            found = "engine spark needs a folder of Parquet files or a Spark catalogue, and this source is neither"
            return found, "choose engine duckdb, source or memory"
    if engine == "source" and not source.startswith(("postgresql", "${")):
        others = "spark, duckdb or memory" if is_spark_url(source) else "duckdb or memory"
        return "engine source needs a PostgreSQL source, and this one is not", f"choose engine {others}"
    if engine not in {"source", "spark"}:
        return None
    numbered = [table.name for table in schema.tables if table.row_id and not table.public]
    if numbered:
        found = f"engine {engine} cannot number the rows of {', '.join(numbered)} (row_id: generated)"
        return found, "choose engine duckdb or memory"
    return None
