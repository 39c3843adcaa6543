"""The ``privacy`` part of a spec file: the unit, and the budget of each release, each refresh and the lifetime."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from privbench_core.spec.fields import (
    NAME,
    NAMES,
    POSITIVE,
    TEXT,
    Form,
    Key,
    Kind,
    Node,
    anything,
    as_name,
    count,
    either,
    list_of,
    number,
)
from privbench_core.spec.refresh import DecayingRefreshes, EqualRefreshes, RefreshPolicy

if TYPE_CHECKING:
    from privbench_core.spec.model import Spec

_LEDGER = re.compile(r"(postgres(ql(\+psycopg)?)?://\S+|\$\{\w+\})$")
_COHORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_PUBLIC = (
    "list a table if anyone may see its rows, like public: [country, product]; else delete it with the foreign keys "
    "that refer to it, or add a foreign key that leads to the unit"
)
_SMALL = number(lambda value: 0 <= value < 1)
_LIFETIME = Form(
    epsilon=Key(number(lambda _: True), "declare the largest total of all releases there will ever be"),
    delta=Key(_SMALL, "write a number from 0 to below 1, at least privacy.delta", None),
)
_EQUAL = Form(
    epsilon=Key(POSITIVE, "write what one refresh, of all epsilons together, may cost"),
    times=Key(count(), "write how many refreshes there may be, the first release counted"),
)
_DECAYING = Form(decay=Key(number(lambda value: 0 < value < 1), "write a number above 0 and below 1"))
_LEDGER_TODO = "write postgresql://user:${PASSWORD}@host/database, or ${VARIABLE}"


def _cohort(value: object) -> str | None:
    name = as_name(value)
    return name if name and _COHORT.fullmatch(name) else None


PRIVACY = Form(
    unit=Key(NAME, "name the table whose rows are protected"),
    public=Key(
        Kind(
            lambda value: () if value == [] else NAMES.read(value),
            {"type": "array", "items": NAME.schema, "uniqueItems": True},
        ),
        _PUBLIC,
        None,
    ),
    delta=Key(_SMALL, "write 0 for pure differential privacy, or a small number like 1.0e-9"),
    epsilons=Key(list_of(POSITIVE, 1), "list at least one number, all above 0, like [0.8, 1.6, 3.2]"),
    lifetime=Key(
        anything(either(POSITIVE, _LIFETIME.kind).schema),
        "declare the largest total of all releases there will ever be",
    ),
    refresh=Key(
        either(_EQUAL.kind, _DECAYING.kind),
        "write {epsilon: 0.5, times: 6} for six refreshes of at most 0.5, or {decay: 0.5} for ever smaller ones",
        None,
    ),
    cohort=Key(
        Kind(_cohort, NAME.schema),
        "name it with up to 40 letters, digits, dots, dashes and underscores, like 2027",
        "",
    ),
    ledger=Key(anything(TEXT.schema), _LEDGER_TODO, None),
)


def parse_budget(node: Node) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return what stands at each key of ``privacy``, and the fields of `Spec` that follow from it.

    The latter are None if one of them is missing or wrong.
    """
    found = node.read(PRIVACY)
    epsilons, delta, refresh, ledger = found["epsilons"], found["delta"], _refresh(node), found["ledger"]
    lifetime = node.inside("lifetime", short="epsilon", where="privacy.lifetime")
    limits = lifetime.read(_LIFETIME) if node.has("lifetime") else {"epsilon": None, "delta": None}
    total, total_delta = limits["epsilon"], limits["delta"] if lifetime.has("delta") else delta
    repeated = [epsilon for epsilon in epsilons or () if epsilons.count(epsilon) > 1]
    if repeated:
        node.wrong("epsilons", f"{repeated[0]!r} stands twice; list every value once")
    if ledger is not None and not (isinstance(ledger, str) and _LEDGER.match(ledger)):
        # The text is not repeated: it may hold a password.
        node.problems.lines.append(f"privacy.ledger: not a PostgreSQL URL; {_LEDGER_TODO}")
    if delta is None or total is None or total_delta is None or not epsilons:
        return found, None
    if total_delta < delta:
        lifetime.wrong("delta", f"it cannot be below privacy.delta {delta!r}")
    least = min(epsilons)
    if total < least:
        todo = f"it cannot pay for the smallest release, {least!r}; list a smaller ε in epsilons, or raise it"
        lifetime.wrong("epsilon", todo)
    if isinstance(refresh, EqualRefreshes) and not least <= refresh.epsilon <= total:
        todo = f"one refresh costs at least the smallest release, {least!r}, at most the lifetime, {total!r}"
        node.wrong("refresh", todo)
    return found, {
        "epsilons": epsilons,
        "delta": delta,
        "lifetime_epsilon": total,
        "lifetime_delta": total_delta,
        "refresh": refresh,
        "cohort": found["cohort"],
        "ledger": ledger,
    }


def _refresh(node: Node) -> RefreshPolicy | None:
    inner = node.inside("refresh", where="privacy.refresh")
    keys = set(inner.fields)
    if keys == set(_EQUAL.keys):
        return inner.build(_EQUAL, EqualRefreshes)
    if keys == set(_DECAYING.keys):
        return inner.build(_DECAYING, DecayingRefreshes)
    if isinstance(node.fields.get("refresh"), dict):
        node.wrong("refresh", PRIVACY.keys["refresh"].todo)
    return None


def dump_budget(spec: Spec) -> dict[str, Any]:
    """Return the mapping that `parse_budget` reads, with the unit."""
    refresh = spec.refresh
    form = _EQUAL if isinstance(refresh, EqualRefreshes) else _DECAYING
    special = {
        "unit": spec.schema.unit,
        "epsilons": list(spec.epsilons),
        "lifetime": {"epsilon": spec.lifetime_epsilon, "delta": spec.lifetime_delta},
        "refresh": None if refresh is None else form.write(vars(refresh)),
    }
    return PRIVACY.write(vars(spec) | special)
