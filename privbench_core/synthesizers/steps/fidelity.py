"""Fidelity steps: how close the released models are to the source, measured under differential privacy.

Comparing with the source reads private rows, so it is priced like everything else: sums of L1 distances to synthetic
marginals move by at most the stability per marginal, which a small share of the budget measures well. The figures may
therefore be shown, logged and published (unpriced comparisons are `privbench evaluate`'s, and internal).

Each distance of pairs is measured together with that of *independent* columns, at the same price: what a database with
every column shuffled would have. Its reference is made of the reference sample alone. So its columns are as far off as
the models' are, and shuffled ones are not: as independent errors add up in squares, the distances of single columns
are taken off so.

Values that were made up are nobody's of the source, whatever the code that they share with those they stand for: pairs
with such a value are as far off as rows can be. Shuffled columns have the source's own values; how far off pairs with a
rare one are then follows from how many rows share it.

Rows are counted, not units: up to how many rows of a unit count in full is chosen for these figures alone.

What is compared is a *reference sample*, drawn from the same released models with a seed and a size of its own, so
that another seed or scale of the published sample does not buy the figures again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from privbench_core.arrays import Array
from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.codec import Codes
from privbench_core.columns.discretizer import Discretizer
from privbench_core.columns.exact_sums import contingency
from privbench_core.columns.intervals import OrderedCodec
from privbench_core.guards import MAX_PAIRS, REFERENCE_ROWS, SHOWN_DEVIATIONS, TINY
from privbench_core.privacy.budget import Price
from privbench_core.privacy.features import Feature, OfParent, Own, feature_size
from privbench_core.privacy.queries import Distances, Marginal
from privbench_core.privacy.relations import WEIGHT_SCALE, deciding_tables
from privbench_core.privacy.session import PrivateSession
from privbench_core.privacy.views import ViewSpec
from privbench_core.profiles.profile import Profile, parent_column
from privbench_core.publishing.verdicts import JOIN, ONE_WAY, SIZE, TWO_WAY, FidelityFigure
from privbench_core.sampling.children import row_weights
from privbench_core.schema.identity import column_identity, constraints_identity, key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key, Step, StepContext, StepKind
from privbench_core.synthesizers.steps.drawing import DRAWING, TableModels
from privbench_core.synthesizers.steps.link import counted_beside, released_profile
from privbench_core.synthesizers.steps.sample import Piece, RangeDrawing, first_parents, model_inputs
from privbench_core.synthesizers.steps.sampled import Sample, SampledTable

Rare = tuple[int, float]
"""A code, and how many rows share one of its values."""


def fidelity_step(schema: Schema, table: Table, price: Price) -> Step:
    """Return the step that compares a reference sample of a private table with the source, for ``price``."""
    parents = first_parents(schema, table)
    public = [name for name in parents if schema.table(name).public]
    drawn = [name for name in parents if name not in public] + [key.child for key in counted_beside(schema, table)]
    inputs: list[Key] = [
        *model_inputs(schema, table),
        *(("fidelity", name) for name in drawn),
        ("profile", schema.unit),
    ]

    def run(context: StepContext) -> Artifact:
        units = released_profile(context.inputs, schema.unit).total
        models = TableModels.of(schema, table, context.inputs, min(1.0, REFERENCE_ROWS / units))
        samples = {name: SampledTable(context.inputs["fidelity", name]) for name in drawn}
        for name in public:
            samples[name] = SampledTable(Sample(context.public[name], {}, None).to_artifact())
        sample = RangeDrawing(models, 0, samples, context.parts, (Piece.whole(models),)).made(0)
        metrics = _metrics(schema, table, price, context, sample, samples)
        stored = sample.to_artifact()
        shown = {figure.metric: str(figure) for figure in metrics}
        return Artifact({**stored.data, "metrics": [f.to_dict() for f in metrics], "summary": shown}, stored.table)

    owner = [table.owner_key.parent] if table.owner_key else []
    reads = tuple(dict.fromkeys([*deciding_tables(schema, table.name), *owner]))
    parameters = {
        "columns": [column_identity(column) for column in table.columns],
        "keys": [key_identity(key) for key in table.foreign_keys],
        "unique": [list(columns) for columns in table.unique],
        "units": table.name in schema.tables_of_units,
        "drawing": DRAWING,  # distances are those of a sample
        **constraints_identity(table.checks, table.dependencies),
    }
    key = ("fidelity", table.name)
    return Step(key, StepKind.FIDELITY, table.name, tuple(dict.fromkeys(inputs)), reads, price, run, parameters, "6")


def _metrics(
    schema: Schema,
    table: Table,
    price: Price,
    context: StepContext,
    sample: Sample,
    samples: Mapping[str, SampledTable],
) -> list[FidelityFigure]:
    """Return mean total variation distances of one-way, two-way and join marginals: noisy, with the noise's σ.

    Formal guarantee: satisfies ``price``; ``docs/privacy.md``, section 5, mechanism 2 (1 without columns).
    """
    session, profile, owner = context.opened(), released_profile(context.inputs, table.name), table.owner_key
    columns: dict[str, tuple[Feature, Discretizer]] = {}
    children, codes = 1.0, dict[str, Codes]()
    if owner is not None:
        above = released_profile(context.inputs, owner.parent)
        children = max(1.0, profile.size.rows / max(above.size.rows, 1.0))
        of_parents, published = _clamped(above), _clamped(above, learned=True)
        for name, found in samples[owner.parent].whole().encoded(schema.table(owner.parent), published).items():
            columns[parent_column(name)] = (OfParent(owner, name), of_parents[name])
            missing = np.int32(of_parents[name].size)  # -1: no owner
            codes[parent_column(name)] = np.append(found, missing)[sample.parents[owner.name]]
    discretizers = _clamped(profile)
    codes |= sample.encoded(table, _clamped(profile, learned=True))
    of_above, own = list(columns), list(discretizers)
    columns = {name: (Own(name), coder) for name, coder in discretizers.items()} | columns
    named: dict[str, Sequence[tuple[str, ...]]] = {
        ONE_WAY: [(name,) for name in own],
        TWO_WAY: _some(list(combinations(own, 2))),
        JOIN: _some([(n, m) for n in of_above for m in own]),
    }
    wanted = {name: sets for name, sets in named.items() if sets}
    if not wanted:  # a table of keys alone: its number of rows is all there is to compare
        view = session.view(ViewSpec(table.name, {}, (profile.size.rows_per_unit,)), "fidelity")
        rows = view.measure("rows", [Marginal(())], price)
        distance = abs(float(rows.values[0]) - profile.total)
        return [FidelityFigure.of((table.name, SIZE), (distance, None), rows.sigma, max(profile.total, 1.0))]
    each = price.share(1 / len(wanted))
    sizes = {name: feature_size(*how) for name, how in columns.items()}
    most, total = _counted(session, table.name, profile, each)
    weights = None if sample.units is None else row_weights(sample.units, most)
    integers = None if weights is None else np.rint(weights * WEIGHT_SCALE).astype(np.int64)

    def reference(columns: tuple[str, ...]) -> Array:
        """Return synthetic counts, scaled to the released number of rows."""
        counts = contingency(codes, sizes, columns, integers).astype(float)
        return np.asarray(counts * (total / max(counts.sum(), 1.0)), dtype=float)

    view = session.view(ViewSpec(table.name, columns, (most,)), "fidelity")
    view.expect([Marginal(cols) for cols in chain(*wanted.values())])
    rares = {name: rare_values(coder, 1.0 if name in own else children) for name, (_, coder) in columns.items()}
    rare = {name: value for name, value in rares.items() if value is not None}
    metrics = []
    for name, sets in wanted.items():
        joints, pairs = {cols: reference(cols) for cols in sets}, name != ONE_WAY
        references, more = [joints], [0.0, 0.0]
        if pairs:
            single = {n: reference((n,)) for n in dict.fromkeys(chain(*sets))}
            references.append({cols: _independent([single[n] for n in cols], total) for cols in sets})
            for cols in sets:
                others = rare_cells(cols, sizes, rare)
                more[0] += float(joints[cols][others].sum())
                joints[cols] = np.where(others, 0.0, joints[cols])
                more[1] += shuffled_apart(cols, references[1][cols], single, rare)
        answer = view.measure("distances", [Distances(tuple(tuple(group.items()) for group in references))], each)
        ours, *shuffled = (float(value) + extra for value, extra in zip(answer.values[0], more, strict=False))
        distances = ours, shuffled[0] if pairs else None
        metrics.append(FidelityFigure.of((table.name, name), distances, answer.sigma, 2 * len(sets) * total))
    above_figures = [] if owner is None else context.inputs["fidelity", owner.parent].data["metrics"]
    own_off, above_off = _one_way(metrics), _one_way(list(map(FidelityFigure.from_dict, above_figures)))
    off = {TWO_WAY: (own_off, own_off), JOIN: (own_off, above_off)}
    return [figure.with_columns_off(*off.get(figure.metric, ())) for figure in metrics]


def _counted(session: PrivateSession, table: str, profile: Profile, price: Price) -> tuple[int, float]:
    """Choose up to how many rows of a unit count in full, and return that and how many rows count then.

    Minimises truncation (rows that do not count may be wrong) plus noise, which grows with the rows that count.
    """
    size = profile.size
    if size.units is None:
        return size.rows_per_unit, profile.total
    two_sums = math.sqrt(2) * session.view(ViewSpec(table, {}), "fidelity").sigma([Marginal(())], price)
    counted = {most: max(1.0, float(size.counted(most).sum())) for most in size.classes}

    def error(most: int) -> float:
        lost = 1 - counted[most] / max(size.rows, counted[most])
        return lost + SHOWN_DEVIATIONS * most * two_sums / (2 * counted[most])

    most = min(size.classes, key=error)
    return most, counted[most]


def _one_way(figures: Sequence[FidelityFigure]) -> float:
    """Return the distance of single columns among figures, as far as it is no noise; 0 without one."""
    found = (figure for figure in figures if figure.metric == ONE_WAY)
    return next((math.sqrt(max(0.0, figure.value**2 - figure.noise**2)) for figure in found), 0.0)


def _clamped(profile: Profile, *, learned: bool = False) -> dict[str, Discretizer]:
    """Return the discretizers of a profile, each as `_clamping` has it."""
    return {name: _clamping(discretizer, learned=learned) for name, discretizer in profile.discretizers.items()}


def _clamping(discretizer: Discretizer, *, learned: bool) -> Discretizer:
    """Return the discretizer with values beyond a declared range in the codes of its ends, where they are published.

    Those beyond a learned range are far from what is published for them: the range was found too narrow. So only of
    synthetic rows these have the codes of the ends as well.
    """
    codec, binning = discretizer.codec, discretizer.binning
    found_narrow = isinstance(codec, OrderedCodec) and codec.open_ended and not learned
    if binning is None or not codec.ordered or not codec.outside or found_narrow:
        return discretizer
    code_of = list(binning.code_of)
    code_of[codec.outside[-1]] = code_of[codec.ordered - 1]
    if len(codec.outside) > 1:
        code_of[codec.outside[0]] = code_of[0]
    return Discretizer(codec, replace(binning, code_of=tuple(code_of)))


def _independent(single: Sequence[Array], total: float) -> Array:
    """Return counts of combinations of independent columns, from the counts of each."""
    return np.asarray(reduce(np.multiply.outer, single) / max(total, 1.0) ** (len(single) - 1), dtype=float)


def _some(sets: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """Return all column sets, or a choice of `MAX_PAIRS` of them that is the same in every run."""
    if len(sets) <= MAX_PAIRS:
        return sets
    chosen = np.random.default_rng(0).choice(len(sets), MAX_PAIRS, replace=False)
    return [sets[i] for i in sorted(chosen)]


def rare_values(coder: Discretizer, children: float) -> Rare | None:
    """Return the code of made-up values, if it has no others, and how many rows share such a value.

    Args:
        coder: Of a column.
        children: Number of rows that are compared, per row of the column's table.
    """
    codec, binning = coder.codec, coder.binning
    if not isinstance(codec, CategoricalCodec) or codec.made is None or codec.other is None:
        return None
    code_of = range(codec.size) if binning is None else binning.code_of
    code, made = code_of[codec.other], codec.made
    if sum(other == code for other in code_of) > 1:
        return None
    rows = np.array(made.rows)
    shared = float(rows @ (rows / np.maximum(made.numbers, 1)) / max(float(rows.sum()), TINY))
    return code, max(1.0, shared * children)


def rare_cells(columns: tuple[str, ...], sizes: Mapping[str, int], rare: Mapping[str, Rare]) -> NDArray[np.bool_]:
    """Return which cells have a made-up value, shape (size, ..)."""
    codes = [
        np.arange(sizes[name]) == rare[name][0] if name in rare else np.zeros(sizes[name], bool) for name in columns
    ]
    return np.asarray(reduce(np.logical_or.outer, codes))


def shuffled_apart(
    columns: tuple[str, ...], expected: Array, single: Mapping[str, Array], rare: Mapping[str, Rare]
) -> float:
    """Return the expected L1 distance, over cells of two columns with rare values, of these columns from shuffled ones.

    Of r rows that share a value of one column, a share p has a code of the other one. Two random choices of r rows
    differ there by min(1 - p, √((1 - p) / (π p r))) of these rows: nearly all, or the difference of two normal numbers.
    """
    sides, apart = [single[name] / max(float(single[name].sum()), TINY) for name in columns], 0.0
    for axis, name in enumerate(columns):
        if name in rare:
            code, rows = rare[name]
            p, rest = sides[1 - axis], np.maximum(1 - sides[1 - axis], 0.0)
            differ = np.minimum(rest, np.sqrt(rest / (math.pi * np.maximum(p, TINY) * rows)))
            apart = max(apart, 2 * float(expected.take(code, axis=axis) @ differ))
    return apart
