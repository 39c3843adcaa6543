"""Our noise as an outside auditor sees it: `dp_recorder` (Re:cord-play) intercepts every draw.

The auditor is not ours: it decides what is recorded, what is returned on the neighbour, and how far inputs may differ.
``tests/auditor.txt`` installs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from privbench_core.privacy.budget import Measure, Price
from privbench_core.privacy.noise import Counts, NoiseSource, Sensitivity


def _audited(kind: str, metric: Callable[[Any, Any], float], drawn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``drawn`` as the auditor intercepts it: ``exact`` is private, and ``declared`` how far it may move."""
    from dp_recorder.auditing.audit_primitives import audit_spec

    intercepted: Callable[..., Any] = audit_spec(
        kind=kind, input_arg="exact", sensitivity_arg="declared", metric_fn=metric
    )(drawn)
    return intercepted


def _l1(one: Any, other: Any) -> float:
    return float(np.abs(np.asarray(one, dtype=float) - np.asarray(other, dtype=float)).sum())


def _l2(one: Any, other: Any) -> float:
    return float(np.sqrt(((np.asarray(one, dtype=float) - np.asarray(other, dtype=float)) ** 2).sum()))


def _largest(one: Any, other: Any) -> float:
    return float(np.abs(np.asarray(one, dtype=float) - np.asarray(other, dtype=float)).max())


def _l2_of_keys(one: dict[str, int], other: dict[str, int]) -> float:
    keys = sorted(one.keys() | other.keys())
    return _l2([one.get(key, 0) for key in keys], [other.get(key, 0) for key in keys])


@dataclass(frozen=True)
class AuditedNoise:
    """Passes every call on to ``source``, by way of the auditor that is active.

    What must not depend on private rows, the site, the shape, the price and the declared sensitivity, are parameters
    that the auditor compares.
    """

    source: NoiseSource
    secure: bool = False

    def add(self, site: str, exact: Counts, sensitivity: Sensitivity, price: Price) -> Counts:
        """See `NoiseSource`."""

        def drawn(exact: Counts, **_: Any) -> Counts:
            return self.source.add(site, exact, sensitivity, price)

        pure = price.measure is Measure.PURE
        kind, metric, declared = ("laplace", _l1, sensitivity.l1) if pure else ("gaussian", _l2, sensitivity.l2)
        audited = _audited(kind, metric, drawn)
        return np.array(audited(exact=exact, declared=declared, site=site, shape=np.shape(exact), price=price))

    def choose(self, site: str, scores: Counts, sensitivity: int, price: Price) -> int:
        """See `NoiseSource`."""

        def drawn(exact: Counts, **_: Any) -> int:
            return self.source.choose(site, exact, sensitivity, price)

        audited = _audited("choice", _largest, drawn)
        return int(audited(exact=scores, declared=sensitivity, site=site, candidates=len(scores), price=price))

    def keep(
        self, site: str, exact: dict[str, int], sensitivity: Sensitivity, price: Price, touched: int
    ) -> dict[str, int]:
        """See `NoiseSource`."""

        def drawn(exact: dict[str, int], **_: Any) -> dict[str, int]:
            return self.source.keep(site, exact, sensitivity, price, touched)

        audited = _audited("keys", _l2_of_keys, drawn)
        return dict(audited(exact=exact, declared=sensitivity.l2, site=site, touched=touched, price=price))
