"""Learning a table for one price: its profile and the model of its rows.

What is spent on one-way marginals and what on joints depends on what was released before, so both are measured in one
step, the profile; a model step that costs nothing hands the model on. Where no joint is worth its noise, the cells of
all columns get the whole price, as if nothing else had been looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privbench_core.models.nodes import Leaf, Node, count_nodes, node_to_dict
from privbench_core.models.pairwise import OneWay, leaf_of
from privbench_core.privacy.budget import Measure, Price, zero
from privbench_core.privacy.curator import Curator
from privbench_core.privacy.door import Door
from privbench_core.privacy.queries import Marginal
from privbench_core.privacy.views import Own, ViewSpec
from privbench_core.schema.model import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Step, StepContext, StepKind
from privbench_core.synthesizers.stages.profile import Cells, Profile, first_look, learned_codecs

_ROWS_SHARE = 0.01
_FIRST = {Measure.PURE: 0.6, Measure.ZCDP: 0.5}


def learn_table(door: Door, table: Table, price: Price, grow, hopeless):
    codecs, rest = learned_codecs(door, table, price)
    sizes = [codec.size for codec in codecs.values() if codec.size > 1]
    share = _FIRST[price.measure]
    if price.measure is Measure.PURE and len(sizes)>1:
        view = door.view(ViewSpec(table.name, {}), "size")
        rows = float(view.measure("rows", [Marginal(())], rest.share(_ROWS_SHARE)).values[0])
        rest = rest.share(1 - _ROWS_SHARE)
        if hopeless(view, sizes, rows, rest.share(1 - share)):
            share = 1.0
    if len(sizes)<2: share=1.0
    cells = first_look(door, table, codecs, rest.share(share))
    profile = cells.profile()
    left: Any = rest.share(1 - share)
    if left.amount > 0:
        features = {name: (Own(name), coder) for name, coder in profile.coders.items()}
        view = door.view(ViewSpec(table.name, dict(features)), "spn")
        ordered = frozenset(name for name, coder in profile.coders.items() if coder.codec.ordered)
        found = grow(view, profile.one_way, ordered, left)
        if not isinstance(found, Price):
            return profile, found
        cells = cells.again(door, table, found)
        profile = cells.profile()
    return profile, leaf_of(profile.one_way)
