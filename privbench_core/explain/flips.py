"""The choices in which two plans of a query differ, named as a database administrator would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from privbench_core.explain.plan import Explained, Join, QueryPlan, Scan

_USES = {"Index Scan": "{}", "Index Only Scan": "{} alone (index-only)", "Bitmap Heap Scan": "a bitmap of {}"}
_SIDES = {
    "hash join": "hash table on {}",
    "nested loop": "nested loop driven by {}",
    "merge join": "merge join led by {}",
}
_NAMED_ELSEWHERE = ("Seq Scan", "Index ", "Bitmap ", "Nested Loop", "Hash Join", "Merge Join")


def name_flips(before: Explained, now: Explained) -> tuple[str, ...]:
    """Return what ``now`` does "instead of" what ``before`` does; nothing if both plans are the same.

    Ways to scan come first, then join methods, then the join order. Other operators (sorts, aggregates) often follow
    from those, and are named only if nothing else differs.
    """
    found = [*_scan_flips(before.scans, now.scans), *_join_flips(before.joins, now.joins)]
    if not found and before.plan != now.plan:
        old, new = (Counter(_operators(each.plan)) for each in (before, now))
        changed, gone = (", ".join(sorted((one - other).elements())) for one, other in ((new, old), (old, new)))
        found = [" instead of ".join(filter(None, (changed, gone))) or "the same operators in another order"]
        found = [f"without {gone}"] if gone and not changed else [f"also {changed}"] if changed and not gone else found
    return tuple(found)


def _scan_flips(before: Sequence[Scan], now: Sequence[Scan]) -> Iterator[str]:
    old, new = _by_alias(before), _by_alias(now)
    for alias in old | new:
        if alias not in new:
            yield f"no scan of {alias}"
        elif alias not in old:
            yield f"a scan of {alias}, which was not read"
        elif old[alias][1] != new[alias][1]:
            yield f"scan of {new[alias][0]} uses {new[alias][1]} instead of {old[alias][1]}"


def _by_alias(scans: Sequence[Scan]) -> dict[str, tuple[str, str]]:
    """Return each alias with how its table is called, and what the scans of it use."""
    found: dict[str, tuple[str, str]] = {}
    for scan in scans:
        called = scan.table if scan.alias == scan.table else f"{scan.table} ({scan.alias})"
        uses = _USES.get(scan.method, "no index").format(" and ".join(scan.indexes))
        found[scan.alias] = called, f"{found[scan.alias][1]}, {uses}" if scan.alias in found else uses
    return found


def _join_flips(before: Sequence[Join], now: Sequence[Join]) -> Iterator[str]:
    old, new = ({frozenset(join.outer + join.inner): join for join in joins} for joins in (before, now))
    for tables, join in new.items():
        was = old.get(tables)
        if was is None or {frozenset(was.outer), frozenset(was.inner)} != {
            frozenset(join.outer),
            frozenset(join.inner),
        }:
            continue
        outer, inner = ", ".join(sorted(join.outer)), ", ".join(sorted(join.inner))
        if was.method != join.method:
            yield f"{outer} joins {inner} by {join.method} instead of {was.method}"
        elif set(was.outer) != set(join.outer):
            side = _SIDES[join.method]
            yield f"{side.format(inner if 'table' in side else outer)} instead of {outer if 'table' in side else inner}"
    if old.keys() != new.keys():
        yield f"join order: {_order(now, new)} instead of {_order(before, old)}"


def _order(joins: Sequence[Join], by_tables: Mapping[frozenset[str], Join]) -> str:
    """Return the aliases in the order of the joins; an input that is itself a join, and not the first, in brackets."""

    def text(tables: tuple[str, ...]) -> str:
        join = by_tables.get(frozenset(tables)) if len(tables) > 1 else None
        if join is None:
            return ", ".join(tables)
        inner = text(join.inner)
        return f"{text(join.outer)}, {f'({inner})' if len(join.inner) > 1 else inner}"

    return text(joins[0].outer + joins[0].inner) if joins else "none"


def _operators(plan: QueryPlan) -> Iterator[str]:
    if not plan.label.startswith(_NAMED_ELSEWHERE) and plan.label != "Hash":
        yield plan.label
    for below in plan.inputs:
        yield from _operators(below)
