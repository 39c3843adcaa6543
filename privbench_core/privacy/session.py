"""The private session: opened for one step, with that step's price reserved in the ledger."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privbench_core.columns.exact_sums import LARGEST
from privbench_core.errors import InternalError, UnsupportedBudgetError
from privbench_core.privacy.admission import admit_bounded, admit_discovery, admit_key, admit_price, admit_view
from privbench_core.privacy.budget import Price
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.filter import PrivacyFilter
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.noise import NoiseSource, OpenDPNoise, Sensitivity, fineness, noise_std, threshold
from privbench_core.privacy.view_building import build_references, build_values, build_view, distinct_weights
from privbench_core.privacy.views import BoundedReferences, CodedView, Engine, ViewSpec
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema


@dataclass(frozen=True)
class Discovered:
    """Released values that many units share, with noisy counts."""

    counts: dict[str, float]
    sigma: float


class PrivateSession:
    """Access to private rows for one step. Only `open_session` makes one."""

    def __init__(self, engine: Engine, privacy_filter: PrivacyFilter, noise: NoiseSource, label: str) -> None:
        self._engine = engine
        self._filter = privacy_filter
        self._noise = noise
        self._label = label

    @property
    def budget(self) -> Price:
        """Return the step's whole price."""
        return self._filter.limit

    @property
    def schema(self) -> Schema:
        """Return the schema, which is public."""
        return self._engine.schema

    def view(self, spec: ViewSpec, name: str = "view") -> Curator:
        """Return a curator of the coded view that ``spec`` describes. Free: only measurements cost.

        Raises:
            InternalError: A feature, discretizer or key that is not on the closed lists, see `admit_view`.
        """
        admitted = admit_view(self._engine.schema, spec)
        return Curator(build_view(self._engine, admitted), self._filter, self._noise, f"{self._label}/{name}")

    def references(self, key: ForeignKey, most: int, name: str, bounded: int | None = None) -> Curator:
        """Return a curator of the rows that refer to parents along ``key``, for `ParentCounts` and `RankSums`. Free.

        Args:
            key: One of the schema's own.
            most: Rows of a unit that count in full; a unit with more counts as much as one with ``most``.
            name: For the ledger.
            bounded: How many rows that refer to rows of one unit count, see `BoundedReferences`; None where all do.
        """
        declared = admit_key(self._engine.schema, key)
        if type(most) is not int or most < 1:
            raise InternalError(f"{declared.name}: the rows of a unit that count in full are a whole number from 1")
        if bounded is not None:
            admit_bounded(self._engine.schema, BoundedReferences(declared, bounded))
        view = build_references(self._engine, declared, most, bounded)
        return Curator(view, self._filter, self._noise, f"{self._label}/{name}")

    def unnamed(self, table: str, column: str, named: tuple[str, ...], most: int) -> Curator:
        """Return a curator of the values of a column that are not ``named``, for `RankSums`: how many rows share each.

        Free: only measurements cost.

        Args:
            table: Private table.
            column: Category column; not part of a key.
            named: Released values of the column; rows that have one of them, or NULL, are in no rank.
            most: Rows of a unit that count in full, a power of two; larger units count as much as one with ``most``.

        Raises:
            InternalError: A column of a key or of another type, or names that are not a tuple of texts.
        """
        admit_discovery(self._engine.schema, table, column, named)
        view = build_values(self._engine, table, column, named, most)
        return Curator(view, self._filter, self._noise, f"{self._label}/values of {column}")

    def threshold(self, table: str, column: str, price: Price) -> float:
        """Return the weight of units from which `discover` names a value for ``price``. Free: it is public.

        Raises:
            UnsupportedBudgetError: No δ.
        """
        _require_delta(table, column, price)
        view = build_view(self._engine, admit_view(self._engine.schema, ViewSpec(table, {})))
        sensitivity = _of_values(view)
        factor = fineness(sensitivity, price)
        return threshold(sensitivity.times(factor), price, view.touched) / (view.weight_scale * factor)

    def discover(self, table: str, column: str, price: Price, named: tuple[str, ...] = ()) -> Discovered:
        """Return the values of a column above a stability threshold that are not ``named`` yet, with noisy counts.

        A unit counts 1/√k for each of its k values, so that rare values of units with many are heard too.

        Formal guarantee: satisfies δ-approximate √(2ρ)-GDP (discrete Gaussian noise and a stability threshold), for
        adding or removing one unit; ``docs/privacy.md``, section 5, mechanism 6.

        Args:
            table: Private table.
            column: Category column whose list of values is learned; not part of a key.
            price: Must carry a δ; charged before any row is read.
            named: Values that are public or were released before: units count for their other ones alone.

        Raises:
            InternalError: A column of a key or of another type, or names that are not a tuple of texts; nothing was
                charged.
            UnsupportedBudgetError: No δ: a list of values cannot be learned under pure ε-DP this way.
        """
        site = f"{self._label}/discover {column}"
        admit_price(site, price)
        admit_discovery(self._engine.schema, table, column, named)
        _require_delta(table, column, price)
        self._filter.charge(site, price)
        exact, view = distinct_weights(self._engine, table, column, named)
        sensitivity = _of_values(view)
        factor = fineness(sensitivity, price)
        finer = {key: min(count, LARGEST // factor) * factor for key, count in exact.items()}
        kept = self._noise.keep(site, finer, sensitivity.times(factor), price, view.touched)
        sigma = noise_std(sensitivity, price) / view.weight_scale
        return Discovered({key: count / (view.weight_scale * factor) for key, count in kept.items()}, sigma)


def _require_delta(table: str, column: str, price: Price) -> None:
    if price.delta <= 0:
        message = f"{table}.{column}: learning a list of values needs delta > 0; declare domain: {{values: [...]}}"
        raise UnsupportedBudgetError(message)


def _of_values(view: CodedView) -> Sensitivity:
    """Return how far one unit moves the weights of values."""
    return Sensitivity(view.stability * math.sqrt(view.touched), float(view.stability))


def open_session(
    engine: Engine,
    ledger: Ledger,
    noise: NoiseSource,
    *,
    release: str,
    step: str,
    run: str,
    price: Price,
    account: str = "",
    purpose: str = "",
) -> tuple[PrivateSession, int]:
    """Reserve ``price`` in an account of the ledger, out of its hold for ``purpose``, and open the session for a step.

    Returns:
        The session and the reservation's id.

    Raises:
        BudgetExhaustedError: The lifetime budget cannot pay; no row was read.
        InternalError: The ledger is durable, and the noise is not secure.
    """
    if ledger.durable and type(noise) is not OpenDPNoise:
        raise InternalError("only OpenDP noise may be used with a durable ledger")
    admit_price(step, price)
    reservation = ledger.reserve(release, step, run, price, account, purpose)
    limit = PrivacyFilter(price, lambda label, cost: ledger.charge(reservation, label, cost))
    return PrivateSession(engine, limit, noise, step), reservation
