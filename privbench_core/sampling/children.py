"""How many children each synthetic owner has, and these rows with what they know of their owners and their unit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privbench_core.columns.group_codes import place_codes, place_count
from privbench_core.columns.systematic import group_counts, narrow
from privbench_core.groups.group_model import OWNER, is_latent
from privbench_core.links.fanout import Fanout
from privbench_core.marginals.sampler import Model, PairMarginal, Rows, draw_column
from privbench_core.marginals.spn import Leaf
from privbench_core.profiles.profile import OWN_FANOUT, OWNER_FANOUT, PLACE, Profile, parent_column
from privbench_core.sampling.keys import ordinal_within
from privbench_core.sampling.references import Parent
from privbench_core.schema.tables import Table
from privbench_core.units.row_count import UNIT_SIZE, size_classes

Places = NDArray[np.signedinteger[Any]]


def numbers_of_children(
    fanout: Fanout,
    parent: Parent,
    total: int,
    rng: np.random.Generator,
    most: Places | None = None,
    stratum: tuple[int, int] = (0, 1),
) -> Places:
    """Return how many children each parent has, ``total`` in all if there is room; shape (parents,).

    Args:
        fanout: The released link.
        parent: The owners.
        total: Of children.
        rng: Sampling only.
        most: Children that each may have (`room_for_children`), shape (parents,); None without a bound.
        stratum: Which of how many equal ranges of owners these are, see `Fanout.numbers`.
    """
    above = Rows(parent.table.num_rows, dict(parent.codes), dict(parent.sizes), parent.weights)
    pair_tables = [PairMarginal(name, joint.T, is_latent(name)) for name, joint in fanout.fanout_tables.items()]
    # What each parent's columns say decides who has more children than whom; how many there are is as released.
    codes = draw_column(above, fanout.counts, pair_tables, rng)
    numbers = np.empty(len(codes), dtype=np.int64)
    numbers[np.lexsort((rng.random(len(codes)), codes))] = fanout.numbers(len(codes), rng, stratum)
    room = np.full(len(numbers), int(numbers.max(initial=0)))
    if most is not None:
        room = np.minimum(room, most)
    return with_sum(np.minimum(numbers, room), total, room, rng)


def children_of(
    fanout: Fanout,
    parent: Parent,
    numbers: Places,
    ownerless: int,
    rng: np.random.Generator,
    table: Table | None = None,
) -> tuple[Rows, Places]:
    """Return rows of an owned table, and the parent of each, given how many children each parent has.

    Rows without an owner (-1) come last, with a context that says so.

    Args:
        fanout: The released link.
        parent: The owners.
        numbers: Children of each, shape (parents,).
        ownerless: Number of rows without an owner.
        rng: Sampling only.
        table: The owned table, where its owner key may be NULL.
    """
    most = parent.table.num_rows + ownerless
    above_all = np.arange(parent.table.num_rows, dtype=np.int32 if most <= np.iinfo(np.int32).max else np.int64)
    alone = np.full(ownerless, -1, dtype=above_all.dtype)
    owners = np.concatenate([np.repeat(above_all, numbers), alone])
    groups = np.append(numbers, 1)  # owner -1, none, takes the last entry
    rows = Rows(len(owners), links=fanout.pair_tables)
    named = owners.copy()  # each row without an owner is a group of its own
    named[len(owners) - ownerless :] = np.arange(parent.table.num_rows, most)
    rows.add(OWNER, most, named)
    sizes = narrow(fanout.sizes.encode_numbers(groups), fanout.sizes.size)
    rows.add(OWNER_FANOUT, fanout.sizes.size, sizes[owners])
    if fanout.places:
        mixed = rng.permutation(len(owners))  # the order of rows is to say nothing
        ranks = np.empty(len(owners), dtype=np.int64)
        ranks[mixed] = ordinal_within(named[mixed]) - 1
        count = place_count(fanout.places)
        rows.add(PLACE, count, narrow(place_codes(ranks, groups[owners], fanout.places), count))
    key = table.owner_key if table is not None else None
    context = {name for name, _ in fanout.pair_tables}
    for name, codes in parent.codes.items():
        if name.startswith(OWN_FANOUT) and parent_column(name) not in context:
            continue  # numbers of other children that these follow in number alone
        none = parent.sizes[name]  # one more code, if the key may be NULL
        size = none + int(key is not None and key.optional)
        rows.add(parent_column(name), size, narrow(np.append(codes, none), none + 1)[owners])
    return rows, owners


def with_sum(numbers: Places, total: int, room: Places, rng: np.random.Generator) -> Places:
    """Return numbers of children that add up to ``total``, if there is room: some children less, or more, at random.

    Args:
        numbers: As drawn, at most ``room``, shape (parents,).
        total: What they should add up to.
        room: Most children of each parent, shape (parents,).
        rng: Sampling only.

    >>> with_sum(np.array([0, 3, 1]), 6, np.array([9, 4, 9]), np.random.default_rng(0)).tolist()
    [0, 4, 2]
    """
    missing = total - int(numbers.sum())
    if missing < 0:
        slots = np.repeat(np.arange(len(numbers)), numbers)
        gone = rng.choice(slots, -missing, replace=False)
        return np.asarray(numbers - np.bincount(gone, minlength=len(numbers)))
    result = numbers.copy()
    while missing > 0 and (result < room).any():
        odds = np.where(result < room, result, 0).astype(float)
        if not odds.any():  # all parents that may have children share what is left
            odds = (result < room).astype(float)
        more = rng.multinomial(missing, odds / odds.sum())
        result = np.minimum(result + more, room)
        missing = total - int(result.sum())
    return result


def add_sizes(rows: Rows, units: Places, profile: Profile, model: Model) -> None:
    """Add to rows what follows from how many of them each unit has: weights, and a class where columns depend on it.

    Where columns depend on it, a leaf's marginals are those of all rows (`Profile.one_way`), and of joints only
    odds ratios are used; of products of signs, their excess over these marginals, though rows were counted otherwise.
    Other models are drawn in the measure in which their rows were counted.
    """
    if not (profile.by_size and isinstance(model, Leaf)):
        rows.weights = row_weights(units, profile.size.rows_per_unit)
    if profile.by_size:
        classes = profile.size.classes
        rows.add(UNIT_SIZE, len(classes), narrow(size_classes(_rows_of_unit(units), classes), len(classes)))
        # How columns follow a class depends on how many of these rows are in it, not of those that were counted.
        drawn = np.bincount(rows.codes[UNIT_SIZE], rows.weights, len(classes)) if rows.n else profile.size.rows_of
        links = {(UNIT_SIZE, name): shape * drawn[:, None] for name, shape in profile.shapes.items()}
        rows.links = {**rows.links, **links}


def row_weights(units: Places, rows_per_unit: int) -> NDArray[np.float64] | None:
    """Return the weights with which units of more than ``rows_per_unit`` rows count as so many; None for 1 each.

    >>> row_weights(np.array([7, 2, 7, 7]), 2).round(2).tolist()
    [0.67, 1.0, 0.67, 0.67]
    """
    weights: NDArray[np.float64] = np.minimum(1.0, rows_per_unit / _rows_of_unit(units))
    return weights if weights.min(initial=1.0) < 1 else None


def _rows_of_unit(units: Places) -> NDArray[np.int64]:
    """Return how many rows have the same number, for each row; shape (rows,)."""
    least, most = (int(units.min()), int(units.max())) if len(units) else (0, 0)
    return group_counts(units - least, most - least + 1)[units - least]
