"""The same conditions, asked only as far as they matter: the operators that cost a tick its time, made to stop.

Dagster's own "all of" asks every operand, also about nothing: whether the inputs of a step are ready is looked up for
each of them at each tick, though nobody wants the step. And "any of the inputs" asks about inputs of which there is no
news. Here both stop early, and "all of the inputs" asks about all at once, with the same answers.

Conditions that are not Dagster's own cannot be evaluated by its daemon, only where this code is loaded, and there for
`LIMIT` assets at most. That is all that this module changes: what the conditions mean is said in `automation`.
"""

from __future__ import annotations

import asyncio
import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import dagster as dg

Condition = dg.AutomationCondition
LIMIT = 500
"""How many conditions a sensor may evaluate where the code is loaded. It is Dagster's limit."""
_REMEMBERING = frozenset({"SINCE", "NEWLY_TRUE"})
_NEWS = frozenset({"data_version_changed", "will_be_requested"})


class _InPlaceOf(Condition[Any]):
    """Stands for one of Dagster's conditions and is called as that is, so that the two find what each other remembered.

    Args:
        condition: Of Dagster's own.
        parts: Its operands, themselves replaced.
    """

    def __init__(self, condition: Condition[Any], parts: Sequence[Condition[Any]]) -> None:
        self._condition = condition
        self._parts = tuple(parts)
        self._unique_ids: dict[tuple[str | None, int | None], str] = {}

    @property
    def name(self) -> str:
        """As the other's."""
        return self._condition.name

    @property
    def description(self) -> str:
        """As the other's."""
        return self._condition.description

    @property
    def operator_type(self) -> Any:
        """As the other's, whose type has no public name."""
        return self._condition.operator_type

    @property
    def children(self) -> Sequence[Condition[Any]]:
        """All operands, whether they are asked or not."""
        return self._parts

    @property
    def requires_cursor(self) -> bool:
        """It remembers nothing itself."""
        return False

    def get_label(self) -> str | None:
        """As the other's."""
        return self._condition.get_label()

    def get_unique_id(self, *, parent_node_unique_id: str | None = None, index: int | None = None) -> str:
        """A hash of all that is below. Dagster asks for it several times per asset and tick, so it is kept."""
        place = (parent_node_unique_id, index)
        if place not in self._unique_ids:
            self._unique_ids[place] = super().get_unique_id(parent_node_unique_id=place[0], index=place[1])
        return self._unique_ids[place]


class AllOf(_InPlaceOf):
    """True where all operands are; asks no further once nothing is left.

    An operand that remembers what it saw at earlier ticks is always asked: it would miss what happens meanwhile.

    Args:
        condition: Dagster's "all of".
        parts: The operands.
        kept: Of what operands remember, that which is remembered elsewhere in the same tree.
    """

    def __init__(self, condition: Condition[Any], parts: Sequence[Condition[Any]], kept: frozenset[str]) -> None:
        super().__init__(condition, parts)
        self._always = tuple(not memories([part]) <= kept for part in parts)

    async def evaluate(self, context: dg.AutomationContext[Any]) -> dg.AutomationResult[Any]:  # type: ignore[override]
        """Ask operand by operand, each about what the ones before it left."""
        left, results = context.candidate_subset, []
        for number, (part, always) in enumerate(zip(self._parts, self._always, strict=True)):
            if always or not left.is_empty:
                results.append(await context.for_child_condition(part, [number], left).evaluate_async())
                left = left.compute_intersection(results[-1].true_subset)
        return dg.AutomationResult(context, left, child_results=results)


class AnyInput(_InPlaceOf):
    """True where something is new about any input; asks nothing further if there is no news of any.

    Args:
        condition: Dagster's "any of the dependencies", whose operand is true only of what changed since the last tick,
            or is requested at this one.
        parts: Its operand.
    """

    async def evaluate(self, context: dg.AutomationContext[Any]) -> dg.AutomationResult[Any]:  # type: ignore[override]
        """Look for news; have Dagster find out where exactly, if there are any."""
        for key in context.asset_graph.get(context.key).parent_keys:
            if await _news(context, key):
                result: dg.AutomationResult[Any] = await self._condition.evaluate(context)  # type: ignore[misc]
                return result
        return dg.AutomationResult(context, context.get_empty_subset())


class AllInputs(_InPlaceOf):
    """True where something is true of every input; asks about all of them at once.

    Dagster's own "all of the dependencies" waits for one before it asks about the next, so that what it looks up (the
    state of every check, say) is looked up one by one.

    Args:
        condition: Dagster's, of all dependencies.
        parts: Its operand.
    """

    async def evaluate(self, context: dg.AutomationContext[Any]) -> dg.AutomationResult[Any]:  # type: ignore[override]
        """Ask about all inputs, each the way Dagster does."""
        every = context.candidate_subset
        questions = [
            context.for_child_condition(Condition.asset_matches(key, self._parts[0]), [None, number], every)
            for number, key in enumerate(sorted(context.asset_graph.get(context.key).parent_keys))
        ]
        results = await asyncio.gather(*(question.evaluate_async() for question in questions))
        left = functools.reduce(lambda left, result: left.compute_intersection(result.true_subset), results, every)
        return dg.AutomationResult(context, left, child_results=results)


async def _news(context: dg.AutomationContext[Any], key: dg.AssetKey) -> bool:
    """Whether an asset is requested at this tick at any ε, or has other contents than at the last one."""
    requested = context.request_subsets_by_key.get(key)
    if requested is not None and not requested.is_empty:
        return True
    before = context.previous_temporal_context
    if before is None:
        return False
    look_up = context.asset_graph_view.compute_data_version_changed_since_temporal_context_subset
    changed = await look_up(key=key, temporal_context=before)
    return not changed.is_empty


def stopping(condition: Condition[Any], kept: frozenset[str] = frozenset()) -> Condition[Any]:
    """The same condition with operators that stop early.

    What is below a look at other assets, or at checks, stays as it is.

    Args:
        condition: Of Dagster's own conditions.
        kept: What is remembered elsewhere in the tree that it is part of.
    """
    if condition.name == "SINCE":
        trigger, reset = condition.children
        since = stopping(trigger, kept).since(stopping(reset, kept | memories([trigger])))
        return since.with_label(condition.get_label())
    if condition.name == "AND":
        return AllOf(condition, [stopping(part, kept) for part in condition.children], kept)
    if condition.name == "ANY_DEPS_MATCH" and _only_news(condition.children[0]):
        return AnyInput(condition, condition.children)
    if condition.name == "ALL_DEPS_MATCH":
        return AllInputs(condition, condition.children)
    make = _OPERATORS.get(condition.name)
    if make is None:
        return condition
    made: Condition[Any] = make(*(stopping(part, kept) for part in condition.children))
    return made.with_label(condition.get_label())  # type: ignore[attr-defined,no-any-return]


_OPERATORS: dict[str, Callable[..., Any]] = {
    "OR": lambda *parts: functools.reduce(operator.or_, parts),
    "NOT": operator.invert,
    "NEWLY_TRUE": lambda part: part.newly_true(),
}


def memories(conditions: Iterable[Condition[Any]]) -> frozenset[str]:
    """Names of all that conditions remember from tick to tick. The same thing remembered twice has one name."""
    found: set[str] = set()
    for condition in conditions:
        found |= memories(condition.children)
        if condition.name in _REMEMBERING:
            found.add(condition.get_unique_id())
    return frozenset(found)


def _only_news(condition: Condition[Any]) -> bool:
    """Whether it is true only of what changed since the last tick, or is requested at this one."""
    return condition.name in _NEWS or (condition.name == "OR" and all(map(_only_news, condition.children)))
