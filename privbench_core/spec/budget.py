"""The budget in a spec file: of each release, of each refresh, and of the lifetime of the database."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from privbench_core.schema.types.numeric import as_number
from privbench_core.spec.fields import MAX_COUNT, Node, as_name
from privbench_core.spec.refresh import DecayingRefreshes, EqualRefreshes, RefreshPolicy

if TYPE_CHECKING:
    from privbench_core.spec.model import Spec

_LEDGER = re.compile(r"(postgres(ql(\+psycopg)?)?://\S+|\$\{\w+\})$")
_COHORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_TIMES = "write how many refreshes there may be, the first release counted"


def parse_budget(node: Node) -> dict[str, Any] | None:
    """Return the fields of `Spec` under ``privacy`` except the unit, or None if one of them is missing or wrong."""
    node.only("unit", "public", "delta", "epsilons", "lifetime", "refresh", "cohort", "ledger")
    delta = _delta(node, "write 0 for pure differential privacy, or a small number like 1.0e-9")
    epsilons = _epsilons(node)
    raw = node.fields.get("lifetime")
    lifetime = Node("privacy.lifetime", raw if isinstance(raw, dict) else {"epsilon": raw}, node.problems)
    lifetime.only("epsilon", "delta")
    total = lifetime.number("epsilon", "declare the largest total of all releases there will ever be")
    total_delta = delta
    if lifetime.has("delta"):
        total_delta = _delta(lifetime, "write a number from 0 to below 1, at least privacy.delta")
    refresh, cohort = _refresh(node), _cohort(node)
    if delta is None or total is None or total_delta is None or not epsilons:
        return None
    if total_delta < delta:
        lifetime.wrong("delta", f"it cannot be below privacy.delta {delta!r}")
    if total < min(epsilons):
        lifetime.wrong(
            "epsilon",
            f"it cannot pay for the smallest release, {min(epsilons)!r}; list a smaller ε in epsilons, or raise it",
        )
    if isinstance(refresh, EqualRefreshes) and not min(epsilons) <= refresh.epsilon <= total:
        todo = f"one refresh costs at least the smallest release, {min(epsilons)!r}, at most the lifetime, {total!r}"
        node.wrong("refresh", todo)
    return {
        "epsilons": epsilons,
        "delta": delta,
        "lifetime_epsilon": total,
        "lifetime_delta": total_delta,
        "refresh": refresh,
        "cohort": cohort,
    }


def _refresh(node: Node) -> RefreshPolicy | None:
    raw = node.fields.get("refresh")
    if raw is None:
        return None
    forms = "write {epsilon: 0.5, times: 6} for six refreshes of at most 0.5, or {decay: 0.5} for ever smaller ones"
    if not isinstance(raw, dict) or set(raw) not in ({"epsilon", "times"}, {"decay"}):
        node.wrong("refresh", forms)
        return None
    inner = Node("privacy.refresh", raw, node.problems)
    if "decay" in raw:
        decay = as_number(raw["decay"])
        if decay is None or not 0 < decay < 1:
            inner.wrong("decay", "write a number above 0 and below 1")
            return None
        return DecayingRefreshes(decay)
    epsilon = as_number(raw["epsilon"])
    times = inner.count("times", 1, MAX_COUNT, _TIMES)
    if epsilon is None or epsilon <= 0:
        inner.wrong("epsilon", "write what one refresh, of all epsilons together, may cost")
        return None
    if times is None:
        if not inner.has("times"):
            inner.wrong("times", _TIMES)
        return None
    return EqualRefreshes(epsilon, times)


def _cohort(node: Node) -> str:
    raw = node.fields.get("cohort")
    if raw is None:
        return ""
    name = as_name(raw)
    if name is None or not _COHORT.fullmatch(name):
        node.wrong("cohort", "name it with up to 40 letters, digits, dots, dashes and underscores, like 2027")
        return ""
    return name


def parse_ledger(privacy: Node) -> str | None:
    """Return the URL of the ledger's database, None for a file in the state folder."""
    raw = privacy.fields.get("ledger")
    if raw is None:
        return None
    if not isinstance(raw, str) or not _LEDGER.match(raw):
        # The text is not repeated: it may hold a password.
        privacy.problems.lines.append(
            "privacy.ledger: not a PostgreSQL URL; write postgresql://user:${PASSWORD}@host/database, or ${VARIABLE}"
        )
        return None
    return raw


def _delta(node: Node, todo: str) -> float | None:
    delta = as_number(node.fields.get("delta"))
    if delta is None or not 0 <= delta < 1:
        node.wrong("delta", todo)
        return None
    return delta


def _epsilons(node: Node) -> tuple[float, ...]:
    raw = node.fields.get("epsilons")
    found = [as_number(item) for item in raw] if isinstance(raw, list) else []
    epsilons = tuple(number for number in found if number is not None and number > 0)
    repeated = [number for number, count in Counter(epsilons).items() if count > 1]
    if not epsilons or len(epsilons) < len(found):
        node.wrong("epsilons", "list at least one number, all above 0, like [0.8, 1.6, 3.2]")
    elif repeated:
        node.wrong("epsilons", f"{repeated[0]!r} stands twice; list every value once")
    return epsilons


def dump_budget(spec: Spec) -> dict[str, Any]:
    """Return the mapping that `parse_budget` reads, with the unit."""
    privacy: dict[str, Any] = {
        "unit": spec.schema.unit,
        "delta": spec.delta,
        "epsilons": list(spec.epsilons),
        "lifetime": {"epsilon": spec.lifetime_epsilon, "delta": spec.lifetime_delta},
    }
    if isinstance(spec.refresh, EqualRefreshes):
        privacy["refresh"] = {"epsilon": spec.refresh.epsilon, "times": spec.refresh.times}
    elif spec.refresh is not None:
        privacy["refresh"] = {"decay": spec.refresh.decay}
    if spec.cohort:
        privacy["cohort"] = spec.cohort
    if spec.ledger:
        privacy["ledger"] = spec.ledger
    return privacy
