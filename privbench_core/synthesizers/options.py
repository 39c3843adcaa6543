"""Options of synthesizers: public parameters with defaults, as a spec gives them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, TypeVar

from privbench_core.errors import SpecError, did_you_mean

T = TypeVar("T")


@dataclass(frozen=True)
class FidelityOptions:
    """What the synthesizers that end with the stages of `assemble` have in common.

    Attributes:
        SHARES: Names of those that are strictly between 0 and 1.
        LEAST: Name -> smallest value, of those that may not be 0.
        validation: Share of the whole budget for the fidelity figures.
    """

    SHARES: ClassVar[frozenset[str]] = frozenset({"validation"})
    LEAST: ClassVar[Mapping[str, float]] = {}
    validation: float = 0.02

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Return options from a spec; every unknown name and bad value in one SpecError."""
        return parsed(cls(), given, shares=cls.SHARES, least=cls.LEAST)


@dataclass(frozen=True)
class GroupOptions(FidelityOptions):
    """What the synthesizers that draw children as groups have in common.

    Attributes:
        members: Weight of an attribute of an owned table against one of a table without owner, in sharing the budget.
        links: Weight of an attribute that a foreign key may be tied to, likewise.
        profile: Share of what a table's attributes get for its profile (one-way marginals, learned domains), which also
            gets what stands for its rows: as much as one attribute, or half of the table's budget.
    """

    SHARES: ClassVar[frozenset[str]] = FidelityOptions.SHARES | {"profile"}
    members: float = 1.5
    links: float = 0.5
    profile: float = 0.1


def parsed(
    default: T,
    given: Mapping[str, Any],
    *,
    shares: frozenset[str] = frozenset(),
    least: Mapping[str, float] | None = None,
    choices: Mapping[str, tuple[str, ...]] | None = None,
) -> T:
    """The frozen dataclass ``default`` with the values that a spec gives; every mistake in one SpecError.

    Args:
        default: Of numbers and strings only; a whole number stays one.
        given: Name -> value.
        shares: Names whose values are strictly between 0 and 1.
        least: Name -> smallest value; 0 for the others.
        choices: Name -> values, of those that are strings.
    """
    known = {field.name: getattr(default, field.name) for field in fields(default)}  # type: ignore[arg-type]
    problems = [
        f"synthesizer.options.{name}: unknown; {did_you_mean(name, known)}" for name in given if name not in known
    ]
    values: dict[str, Any] = {}
    for name in known.keys() & given.keys():
        value, allowed = given[name], (choices or {}).get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        bound = (least or {}).get(name, 0)
        if allowed is not None:
            if value not in allowed:
                problems.append(f"synthesizer.options.{name}: {value!r} is not one of {', '.join(allowed)}")
        elif not number or not 0 <= value < math.inf:
            problems.append(f"synthesizer.options.{name}: {value!r} is not a number of at least 0")
        elif name in shares and not 0 < value < 1:
            problems.append(f"synthesizer.options.{name}: {value} is not a share strictly between 0 and 1")
        elif value < bound:
            problems.append(f"synthesizer.options.{name}: {value} is less than {bound:g}")
        values[name] = int(value) if isinstance(known[name], int) and number and math.isfinite(value) else value
    if problems:
        raise SpecError(sorted(problems))
    return replace(default, **values)  # type: ignore[type-var]
