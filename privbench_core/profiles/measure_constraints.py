"""Find what holds between the columns of each row: candidates by types and released numbers, one priced count for each.

Rows that keep a candidate, and rows that do not, are counted once per unit: noise is least then, and what always holds
holds for every unit. No more is paid than tells a constraint that holds from one that one row in twenty breaks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from privbench_core.arrays import Array
from privbench_core.columns.grid import Grid
from privbench_core.columns.group_codes import index_coder
from privbench_core.columns.row_constraints import (
    SATISFIED,
    VERDICTS,
    VIOLATED,
    declared_constraints,
    expected_numbers,
    missing_where,
)
from privbench_core.estimators.fitting import fit_margins
from privbench_core.guards import FEW, FITTING_ROUNDS, SCREENED, SHOWN_DEVIATIONS, SMOOTHING, TINY
from privbench_core.marginals.measure_one_way import noise_power
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Satisfies
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.constraint_candidates import Candidate, candidates, null_of
from privbench_core.profiles.profile import Profile
from privbench_core.schema.row_constraints import (
    MissingTogether,
    MissingWhere,
    PartOfDate,
    RowConstraint,
    SameValue,
    in_sequence,
)
from privbench_core.schema.tables import Table
from privbench_core.tuning import TUNING


def measure_constraints(
    session: PrivateSession, table: Table, profile: Profile, price: Price
) -> tuple[tuple[RowConstraint, ...], Price]:
    """Return the constraints of a table's rows that hold beyond noise, for at most ``price``, and what was paid.

    Nothing is paid where nothing is plausible, or where noise would hide it: each candidate gets what its noise has to
    be, as long as there is enough. It is taken to hold if what breaks it, its noisy number and twice its standard
    deviation, is less than what keeps it and less than what may break it (`Candidate.bar`).

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanisms 1, 4 and 7.
    """
    declared = {frozenset(each.columns) for each in declared_constraints(table)}
    unknown = (each for each in candidates(table, profile) if frozenset(each.constraint.columns) not in declared)
    found = _by_turns(sorted(unknown, key=lambda each: each.order))[:64]  # are counted together
    paid = 0.0
    if not found or price.amount <= 0:
        return (), price.share(0)
    units = profile.size.rows if profile.size.units is None else float(profile.size.units_of.sum())
    coder = index_coder("#verdict", VERDICTS)
    features = {str(n): (Satisfies(each.constraint), coder) for n, each in enumerate(found)}
    view = session.view(ViewSpec(table.name, dict(features)), "constraints")
    noise, power = view.sigma([Marginal(("0",))], price), noise_power(price.measure)
    shares: dict[str, float] = {}
    for name, each in zip(features, found, strict=True):
        wanted = min(each.bar, each.share) * units / (2 * SHOWN_DEVIATIONS)
        share = min(noise / max(wanted, TINY), 1 / SMOOTHING) ** (1 / power)
        if paid + share <= (1 if each.likely else TUNING.strong):
            shares[name], paid = share, paid + share
    if not shares:
        return (), price.share(0)
    room = 1 if any(found[int(name)].likely for name in shares) else TUNING.strong
    more = min(2 ** (1 / power), max(room / paid, 1.0))  # half the noise, where there is enough for that
    view.expect([Marginal((name,)) for name in shares])
    kept: dict[RowConstraint, float] = {}
    for name, share in shares.items():
        noisy, each = view.measure("constraint", [Marginal((name,))], price.share(more * share)), found[int(name)]
        broken, keeping = (max(float(noisy.values[0][verdict]), 0.0) for verdict in (VIOLATED, SATISFIED))
        if broken + SHOWN_DEVIATIONS * noisy.sigma <= min(each.bar * units, keeping):
            kept[each.constraint] = broken / keeping
    return in_sequence(sorted(kept, key=kept.__getitem__)), price.share(more * paid)


def _by_turns(found: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates in order, but a second one for a column after the first ones of all that are as plausible."""
    seen: Counter[str] = Counter()
    turns = []
    for each in found:
        name = each.constraint.columns[0]
        turns.append((round(each.order[0]), seen[name]))
        seen[name] += 1
    order = sorted(range(len(found)), key=turns.__getitem__)
    return [found[place] for place in order]


def constraint_joints(table: Table, profile: Profile) -> dict[tuple[str, str], Array]:
    """Return counts of the pairs of columns of which one says what the other is, or where that is NULL.

    By their released margins, and in the order of these; within what a constraint leaves open, columns are independent.
    """
    clean, found = profile.one_way.clean(), {}

    def add(of: str, column: str, start: Array) -> None:
        joint = fit_margins(start, [((0,), clean[of]), ((1,), clean[column])], FITTING_ROUNDS)
        in_order = list(clean).index(of) < list(clean).index(column)
        found[(of, column) if in_order else (column, of)] = joint if in_order else joint.T

    for constraint in profile.constraints:
        if isinstance(constraint, MissingWhere):
            for column in _missing_like(constraint.column, profile):
                if (start := _where_missing(constraint, column, profile)) is not None:
                    add(constraint.of, column, start)
            continue
        if not isinstance(constraint, PartOfDate | SameValue):
            continue
        of, own = (profile.discretizers[name] for name in (constraint.of, constraint.column))
        first, second = clean[constraint.of], clean[constraint.column]
        codes = np.repeat(np.arange(of.size), SCREENED // of.size + 1)
        values = of.decode(codes, np.random.default_rng(0))
        expected, unknown = expected_numbers(table, constraint, {constraint.of: values})
        grid = Grid.of(table.column(constraint.column))
        made = own.encode(pa.chunked_array([grid.array(expected[~unknown])]))
        pairs = np.bincount(codes[~unknown] * own.size + made, minlength=of.size * own.size)
        chances = pairs.reshape(of.size, own.size) / np.maximum(np.bincount(codes), 1)[:, None]
        independent = np.outer(first, second) / max(float(second.sum()), 1.0)
        told = np.bincount(codes[~unknown], minlength=of.size) > 0
        start = first[:, None] * chances + np.where(told, FEW, 1.0)[:, None] * independent
        add(constraint.of, constraint.column, start)
    return found


def _missing_like(column: str, profile: Profile) -> Sequence[str]:
    """Return a column and those that are NULL where it is."""
    together = [each.columns for each in profile.constraints if isinstance(each, MissingTogether)]
    return next((columns for columns in together if column in columns), (column,))


def _where_missing(constraint: MissingWhere, column: str, profile: Profile) -> Array | None:
    """Return what a constraint leaves of the joint of a list and a column; None where NULL has no code of its own."""
    of, own = profile.discretizers[constraint.of], profile.discretizers[column]
    null, part = null_of(own)
    if part < 1:
        return None
    clean = profile.one_way.clean()
    texts = of.decode(np.arange(of.size), np.random.default_rng(0))
    wanted, unknown = missing_where(constraint, texts)
    allowed = wanted[:, None] == (np.arange(own.size) == null)
    independent = np.outer(clean[constraint.of], clean[column]) / max(float(clean[column].sum()), 1.0)
    return independent * np.where(allowed | unknown[:, None], 1.0, FEW)
