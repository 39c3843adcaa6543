"""The contract between synthesizers and whatever runs them.

A synthesizer reads no rows to make its plan: a directed acyclic graph of `Step`s, each with a price known in advance.
The command line runs the steps in order; Dagster draws one asset per step and runs the same functions. Neither knows
one synthesizer from another: they are found by name, by entry point, so that a sixth one is an installed module and
nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property, reduce
from hashlib import blake2b
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from privbench_core.errors import InternalError, SpecError, did_you_mean
from privbench_core.privacy.budget import Budget, Price
from privbench_core.privacy.session import PrivateSession
from privbench_core.schema.identity import Identity
from privbench_core.schema.queried import Queried
from privbench_core.schema.tables import Schema
from privbench_core.spec.model import FidelityPolicy
from privbench_core.synthesizers.artifact import Artifact, PartFiles
from privbench_core.tuning import TUNING

if TYPE_CHECKING:
    from privbench_core.workload import Workload


Key = tuple[str, ...]


class StepKind(StrEnum):
    """The stages of the pipeline, in order."""

    COUNT = "count"
    PROFILE = "profile"
    MODEL = "model"
    FANOUT = "fanout"
    FIDELITY = "fidelity"
    SAMPLE = "sample"
    VALIDATE = "validate"
    PUBLISH = "publish"


_TUNED = (StepKind.COUNT, StepKind.PROFILE, StepKind.MODEL, StepKind.FANOUT, StepKind.SAMPLE)


@dataclass(frozen=True)
class StepContext:
    """What a step gets to work with.

    Attributes:
        inputs: Artifacts of the steps it names as inputs.
        session: The way to private rows, open for exactly the step's price; None for steps that cost nothing.
        public: The public tables, as they are.
        seed: Seed of the run: for sampling and for structure, which are not privacy noise.
        scale: Size of the synthetic database relative to the source.
        out: Where a publish step writes the bundle.
        receipt: Facts about the whole run that a publish step puts into the bundle (guarantee, spend).
        workload: Queries that a publish step puts into the bundle, by name; the owner declares their text public.
        fidelity: How a publish step judges the fidelity figures.
        parts: Where a sample step keeps rows that it makes range by range.
        workers: Most processes at a time, see `workers.side_by_side`.
        csv: Whether a publish step writes rows for psql, too.
    """

    inputs: Mapping[Key, Artifact]
    session: PrivateSession | None
    public: Mapping[str, pa.Table]
    seed: int
    scale: float = 1.0
    out: Path | None = None
    receipt: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, Workload] = field(default_factory=dict)
    fidelity: FidelityPolicy = field(default_factory=FidelityPolicy)
    parts: PartFiles = field(default_factory=PartFiles.temporary)
    workers: int | None = None
    csv: bool = True

    def rng(self, *salt: str) -> np.random.Generator:
        """Return a generator for sampling, determined by the run's seed and ``salt``; never used for privacy noise."""
        return sampling_rng(self.seed, *salt)

    def opened(self) -> PrivateSession:
        """Return the session; InternalError if this step was not given one."""
        if self.session is None:
            raise InternalError("a step without a price asked for private rows")
        return self.session


def sampling_rng(seed: int, *salt: str) -> np.random.Generator:
    """Return a generator for sampling that its arguments determine; of different ``salt`` they are independent."""
    word = int.from_bytes(blake2b("\x1f".join(salt).encode(), digest_size=8).digest(), "little")
    return np.random.default_rng([seed, word])


def structure_rng(name: str) -> np.random.Generator:
    """Return a generator for the structure of models, not of the run's seed: another sample buys no model again."""
    return sampling_rng(0, "structure", name)


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    Attributes:
        key: (stage, table) or (stage, foreign key): unique in the plan, stable over runs.
        kind: Stage.
        table: The table it belongs to, "" for the whole database.
        inputs: Keys of the steps whose artifacts it needs.
        reads: Private tables it may look at; empty if it needs no private session. Their fingerprints are part of what
            it releases.
        price: Cost, known before any row is read.
        run: The work.
        parameters: All else that determines the result, JSON-able: part of the release's identity.
        version: Changed by hand when the code of the step changes what it releases.
        depends: What of the run it depends on in addition to its inputs: any of "seed", "scale".
    """

    key: Key
    kind: StepKind
    table: str
    inputs: tuple[Key, ...]
    reads: tuple[str, ...]
    price: Price
    run: Callable[[StepContext], Artifact]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    version: str = "1"
    depends: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return its name, price and what it reads in one line."""
        price = f"{self.price}, reads {', '.join(self.reads)}" if self.reads else "free"
        return f"<Step {'/'.join(self.key)}: {price}>"

    @property
    def code_version(self) -> str:
        """The version and, of steps that measure, model or draw, the tuning: part of the release's identity."""
        return f"{self.version}, tuning {TUNING.fingerprint}" if self.kind in _TUNED else self.version

    @property
    def identity(self) -> Identity:
        """What determines its result beside synthesizer, rows and inputs' content: part of the release's identity."""
        return {
            "step": self.key,
            "version": self.code_version,
            "parameters": dict(self.parameters),
            "price": [self.price.measure.value, self.price.amount, self.price.delta],
        }


@dataclass(frozen=True)
class Plan:
    """Steps in an order in which they can run, and the budget they share.

    Attributes:
        synthesizer: Name of the synthesizer that made it.
        budget: The guarantee of the whole plan.
        steps: Inputs before the steps that use them.
        joints: Whether its models converge to joint distributions as the budget grows. A plan that holds no joints by
            design says so, and is held to numbers of rows, one-way marginals, fanout and popularity alone.
        queried: What a published workload touches, if the plan spends more there.
    """

    synthesizer: str
    budget: Budget
    steps: tuple[Step, ...]
    joints: bool = True
    queried: Queried | None = None

    def __post_init__(self) -> None:
        seen: set[Key] = set()
        amount = delta = 0.0
        for step in self.steps:
            missing = [key for key in step.inputs if key not in seen]
            if missing or step.key in seen:
                raise InternalError(f"{step.key}: runs before its inputs {missing}, or twice")
            if bool(step.reads) != (step.price.amount > 0):
                raise InternalError(f"{step.key}: a step reads private rows exactly if it has a price")
            seen.add(step.key)
            amount += step.price.amount
            delta += step.price.delta
        total = self.budget.total()
        if not Price(total.measure, amount, delta).fits(total):
            raise InternalError(f"the plan costs {amount:.6g}, more than its budget {total}")

    def __repr__(self) -> str:
        """Return its budget, size and price in one line."""
        paid = sum(bool(step.reads) for step in self.steps)
        budget = f"ε={self.budget.epsilon:g}, δ={self.budget.delta:g}"
        return f"<Plan by {self.synthesizer} at {budget}: {len(self.steps)} steps, {paid} of them paid; {self.price}>"

    def step(self, key: Key) -> Step:
        """Return the step of that key."""
        return self._by_key[key]

    def learning_price(self, table: str) -> Price | None:
        """Return the price of all that learns a private table's domains and sizes; None if nothing does."""
        kinds = (StepKind.COUNT, StepKind.PROFILE)
        prices = [step.price for step in self.steps if step.table == table and step.kind in kinds]
        return reduce(operator.add, prices) if prices else None

    @cached_property
    def price(self) -> Price:
        """The price of all steps together: what a release costs if nothing of it was bought before."""
        return reduce(operator.add, (step.price for step in self.steps))

    @cached_property
    def nearest(self) -> dict[Key, tuple[Key, ...]]:
        """The inputs of each step but those that another input was made from: what a drawing of the plan needs."""
        number = {step.key: i for i, step in enumerate(self.steps)}
        found: dict[Key, tuple[Key, ...]] = {}
        for step in self.steps:
            kept, behind = [], set[Key]()
            for key in sorted(step.inputs, key=number.__getitem__, reverse=True):
                if key not in behind:
                    kept.append(key)
                    behind.update(self.step(key).inputs)
            found[step.key] = tuple(reversed(kept))
        return found

    def first_reads(self, public: Collection[str]) -> dict[Key, frozenset[str]]:
        """Return the tables that each step is the first on its line to look at; all look at the ``public`` ones."""
        seen: dict[Key, frozenset[str]] = {}
        first: dict[Key, frozenset[str]] = {}
        for step in self.steps:
            before = frozenset[str]().union(*(seen[key] for key in step.inputs))
            seen[step.key] = before.union(step.reads, public)
            first[step.key] = seen[step.key] - before
        return first

    @cached_property
    def _by_key(self) -> dict[Key, Step]:
        return {step.key: step for step in self.steps}


class Synthesizer(Protocol):
    """A way to make synthetic databases. A new one is a module and an entry point."""

    name: str

    def plan(self, schema: Schema, budget: Budget, options: Mapping[str, Any]) -> Plan:
        """Return the steps and their prices, without reading a row.

        Raises:
            SpecError: Options that this synthesizer does not know, or values out of range.
            UnsupportedBudgetError: The synthesizer has no form for this budget (say, δ = 0).
        """
        ...


GROUP = "privbench.synthesizers"


@cache
def installed(group: str) -> EntryPoints:
    """Return the entry points of a group; looked up once, because that opens a file of every installed package.

    What is installed later is seen by the next process.
    """
    return entry_points(group=group)


def names() -> list[str]:
    """Return the names of all installed synthesizers."""
    return sorted(point.name for point in installed(GROUP))


def load_synthesizer(name: str) -> Synthesizer:
    """Return a new instance of the synthesizer called ``name``; SpecError with a hint if there is none."""
    for point in installed(GROUP):
        if point.name == name:
            made: Synthesizer = point.load()()
            return made
    raise SpecError(f"synthesizer '{name}': not installed; {did_you_mean(name, names())}")
