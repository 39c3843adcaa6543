"""What is measured of a private table first: count steps and profile steps; and model steps, which cost nothing.

Numbers of units cost little, and say of which tables noise will hide all that costs more: their steps come first. What
public rows say of domains is known exactly, at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privbench_core.arrays import Array
from privbench_core.columns.categorical import CategoricalCodec
from privbench_core.columns.codec import Codec
from privbench_core.columns.grid import Grid
from privbench_core.columns.made_up import words_of
from privbench_core.columns.registry import codec_for
from privbench_core.columns.row_constraints import declared_constraints
from privbench_core.columns.surrogates import key_alphabets
from privbench_core.guards import MAX_PUBLIC_CODES
from privbench_core.marginals.measure_spn import PairwiseSPN
from privbench_core.marginals.measured import Measured
from privbench_core.marginals.spn import count_nodes, node_to_dict
from privbench_core.privacy.budget import Price, zero
from privbench_core.privacy.relations import WEIGHT_SCALE, deciding_tables, stability
from privbench_core.profiles.measure_lags import own_lag_pairs, tied_columns
from privbench_core.profiles.measure_profile import Cells, Network, learn_table
from privbench_core.profiles.profile import Profile, relative_dates
from privbench_core.schema.columns import Column, Learn, Pattern, Range
from privbench_core.schema.documents import documents_to_learn
from privbench_core.schema.identity import column_identity, key_identity
from privbench_core.schema.tables import Schema, Table
from privbench_core.stored import restored
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Step, StepContext, StepKind
from privbench_core.tuning import TUNING
from privbench_core.units.measure_row_count import measure_units
from privbench_core.units.row_count import UnitCount

Networks = Callable[[Mapping[str, int]], Network]
"""`ordered_codes` of the columns -> network."""


def count_step(schema: Schema, table: Table, price: Price) -> Step:
    """Return the step that counts the units with rows in a private table, for its part of the table's ``price``."""
    bound, key = schema.max_rows_per_unit(table.name), ("count", table.name)
    of_count = price.share(TUNING.size_share if bound > 1 else TUNING.number_share)

    def run(context: StepContext) -> Artifact:
        counted = measure_units(context.opened(), table.name, bound, of_count)
        summary = {
            "units with rows (estimated)": round(max(0.0, float(counted.units.sum()))),
            "noise per count (σ)": round(counted.sigma, 3),
        }
        return Artifact({"units": counted.to_dict(), "summary": summary})

    reads = deciding_tables(schema, table.name)
    parameters = {**_rows_kept(schema, table.name), "bound": min(bound, WEIGHT_SCALE)}
    return Step(key, StepKind.COUNT, table.name, (), reads, of_count, run, parameters)


def _rows_kept(schema: Schema, table: str) -> dict[str, Any]:
    """Return what of a schema decides which rows of a table are kept and how much each may count."""
    return {
        # But for the bounds of keys that become NULL.
        "keys": [
            [key_identity(key) for key in schema.table(name).foreign_keys if key.cascades or key.same_unit]
            for name in deciding_tables(schema, table)
        ],
        "stability": stability(schema, table),
    }


def profile_steps(
    schema: Schema, table: Table, price: Price, first: float = 1.0, networks: Networks | None = None
) -> list[Step]:
    """Return the first steps of a private table, for ``price``: count and profile, and joints if there are networks.

    Args:
        schema: The database.
        table: The table.
        price: Of both steps.
        first: Share of the price for the first one-way marginals: all of it without networks.
        networks: What models the attributes.
    """
    for column in table.modelled:
        if not isinstance(column.domain, Learn):
            codec_for(column, table=table.name)  # a domain that cannot be coded is refused before anything is spent
    for column in map(table.column, table.primary_key):
        if isinstance(column.domain, Pattern):
            key_alphabets(column, column.domain, table=table.name)
    count = count_step(schema, table, price)
    rest = Price(price.measure, price.amount - count.price.amount, price.delta)
    parameters = {
        "columns": [column_identity(column) for column in table.attributes],
        "primary key": list(table.primary_key),
        "unique": [list(columns) for columns in table.unique],
        **_rows_kept(schema, table.name),
        **({"documents": "1"} if documents_to_learn(table.attributes) else {}),
        **({"lags": "4"} if own_lag_pairs(table) or relative_dates(table) else {}),
        **({"ties": tied} if (tied := tied_columns(table)) else {}),
        **({"declared": [each.in_words for each in declared]} if (declared := declared_constraints(table)) else {}),
        # What bounds say beyond the largest T counted once.
        **({"largest unit": WEIGHT_SCALE} if schema.max_rows_per_unit(table.name) > WEIGHT_SCALE else {}),
        **({} if networks is None else {**networks({}).identity(), "first": first}),
    }
    key = ("profile", table.name)

    def run(context: StepContext) -> Artifact:
        known, counted = with_public_domains(schema, table, context.public), released_units(context.inputs[count.key])
        cells, profile, measured = learn_table(context.opened(), known, counted, rest, first, networks or PairwiseSPN)
        joints = {} if networks is None else {"measured": measured.to_dict()}
        return Artifact({"profile": profile.to_dict(), **joints, "summary": summary_of(table, profile, cells)})

    return [count, Step(key, StepKind.PROFILE, table.name, (count.key,), count.reads, rest, run, parameters, "37")]


def released_units(artifact: Artifact) -> UnitCount:
    """Return what a count step has released."""
    return UnitCount.from_dict(artifact.data["units"])


def learn_steps(schema: Schema, table: Table, price: Price, first: float, networks: Networks) -> list[Step]:
    """Return the count and profile steps, with joints, and the model step, which fits a network to them at no cost.

    Arguments are those of `profile_steps`.
    """
    count, profile = profile_steps(schema, table, price, first, networks)

    def fit(context: StepContext) -> Artifact:
        measured: Measured = restored(context.inputs[profile.key].data["measured"])
        node = measured.fit()
        return Artifact({"model": node_to_dict(node), "summary": count_nodes(node)})

    free = zero(price.measure)
    model = Step(("model", table.name), StepKind.MODEL, table.name, (profile.key,), (), free, fit, version="4")
    return [count, profile, model]


def summary_of(table: Table, profile: Profile, cells: Cells) -> dict[str, Any]:
    """Return released facts for people: sizes, clamped values, histograms."""
    bars, clamped = {}, {}
    for name, counts in cells.first.items():
        codec = cells.codecs[name]
        outside = float(sum(counts[cell] for cell in codec.outside))
        learned = isinstance(codec, CategoricalCodec) and codec.made is not None
        if codec.outside and not learned and outside > 3 * cells.sigmas[name] * np.sqrt(len(codec.outside)):
            clamped[f"{table.name}.{name}"] = round(outside)
        bars[name] = _bars(codec, counts)
    summary: dict[str, Any] = {
        "rows (estimated)": round(profile.size.rows),
        "rows, off by about (σ)": round(profile.size.sigma, 1),
        "rows of a unit that are counted in full": profile.size.rows_per_unit,
        "noise per count (σ, largest)": round(max(cells.sigmas.values(), default=profile.size.sigma), 3),
        "codes": sum(discretizer.size for discretizer in profile.discretizers.values()),
        "bars": bars,
    }
    if profile.constraints:
        summary["holds in every row"] = [constraint.in_words for constraint in profile.constraints]
    if clamped:
        summary["values outside of the declared domain, clamped (noisy counts)"] = clamped
    return summary


def _bars(codec: Codec, counts: Array, most: int = 24) -> dict[str, list[Any]]:
    """Return at most so many bars of a column's released histogram."""
    labels = codec.labels()
    shown = np.maximum(counts, 0)
    if codec.ordered > most:
        edges = np.linspace(0, codec.ordered, most + 1).astype(int)
        grouped = [float(shown[a:b].sum()) for a, b in pairwise(edges)]
        return {"labels": [labels[a] for a in edges[:-1]], "counts": [round(v) for v in grouped]}
    largest = np.sort(np.argsort(-shown)[:most])
    return {"labels": [labels[i] for i in largest], "counts": [round(float(shown[i])) for i in largest]}


_OF_ANYTHING = {"name", "title", "type", "kind", "status", "code", "id", "number", "value", "description"}
"""Words that say too little of what a value is for the values of another column to be of the same list."""


def with_public_domains(schema: Schema, table: Table, public: Mapping[str, pa.Table]) -> Table:
    """Return a table with what public rows say of its attributes, where their domains are to be learned.

    Columns that refer to public rows have the range of the values there. Lists begin with the values of key columns of
    public tables that have the same name: a team is one of the teams, whether a key is declared or not. And with those
    of a public row that is referred to: a customer of some sales region is in one of the ``sales_city`` of regions.

    Args:
        schema: The database.
        table: A private table.
        public: Rows of public tables, by name.
    """
    known = {}
    for key in table.foreign_keys:
        for name, target in zip(key.columns, key.parent_columns, strict=True):
            column = table.column(name)
            if isinstance(column.domain, Learn) and key.parent in public:
                grid = Grid.of(column, table.name)
                numbers, null = grid.numbers(public[key.parent].column(target))
                present = numbers[~null]
                if len(present):
                    known[name] = replace(column, domain=Range(grid.scalar(present.min()), grid.scalar(present.max())))
    for column in table.modelled:
        if column.learns_list and isinstance(column.domain, Learn) and (names := _names(schema, table, column, public)):
            known[column.name] = replace(column, domain=replace(column.domain, names=names))
    return replace(table, columns=tuple(known.get(column.name, column) for column in table.columns))


def _names(schema: Schema, table: Table, column: Column, public: Mapping[str, pa.Table]) -> tuple[str, ...]:
    """Return the values of columns of public tables that are called like ``column``, as text.

    They are parts of keys there, or lists of a few values of rows that the table refers to.
    """
    parents, words, found = {key.parent for key in table.foreign_keys}, words_of(column.name), set[str]()
    for name, rows in public.items():
        for other in schema.table(name).columns:
            is_key = other.name == column.name and other.name in schema.table(name).primary_key
            if is_key:
                fits = other.type.ordered is column.type.ordered
            else:
                called_so = words <= words_of(other.name) and not words <= _OF_ANYTHING
                kinds = (other.type.logical.textual, column.type.logical.textual)
                fits = name in parents and called_so and (all(kinds) or other.type is column.type)
            if fits:
                values = {*pc.unique(rows.column(other.name).drop_null().cast(pa.string())).to_pylist()}
                found |= values if is_key or len(values) <= MAX_PUBLIC_CODES else set()
    return tuple(sorted(found))
