"""The ``fidelity`` part of a spec: when published figures are bad enough to warn, and whether they stop a bundle."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from privbench_core.spec.fields import Node


@dataclass(frozen=True)
class FidelityPolicy:
    """How the fidelity figures of a release are judged. It costs nothing to change.

    Attributes:
        block: Whether bad figures keep a bundle from being published; else they warn.
        accept_noise: Whether steps are bought of which released numbers show that they will be noise.
        one_way: Largest mean total variation distance of single columns. A quarter of the rows, as in an evaluation's
            "far" (`evaluation.verdict.DISTANCE`).
        to_shuffled: Largest distance of pairs and joins, relative to that of shuffled columns.
    """

    block: bool = False
    accept_noise: bool = False
    one_way: float = 0.25
    to_shuffled: float = 1.0


def parse_fidelity(node: Node) -> FidelityPolicy:
    """Return the policy of a spec, the default one without a ``fidelity`` part."""
    default = FidelityPolicy()
    inner = node.mapping("fidelity", "write a mapping like {block: true}") if node.has("fidelity") else None
    if inner is None:
        return default
    inner.only(*asdict(default))
    limits = {"one_way": default.one_way, "to_shuffled": default.to_shuffled}
    for name in limits.keys() & inner.fields.keys():
        todo = "write a distance above 0, as a share: 0.25 is a quarter"
        found = inner.number(name, todo)
        if found is not None and not 0 < found <= 1:
            inner.wrong(name, f"{todo}, at most 1")
        limits[name] = found or limits[name]
    return FidelityPolicy(inner.flag("block"), inner.flag("accept_noise"), **limits)


def dump_fidelity(policy: FidelityPolicy) -> dict[str, Any]:
    """Return the ``fidelity`` part, without default values."""
    defaults = asdict(FidelityPolicy())
    return {name: value for name, value in asdict(policy).items() if value != defaults[name]}
