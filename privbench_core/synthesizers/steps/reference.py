"""Reference samples: synthetic rows that a link step compares the source with, before any run's sample is drawn.

They come from released models and a fixed seed, so another seed or scale of a run buys nothing again. Post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privbench_core.columns.codec import Codes
from privbench_core.guards import REFERENCE_ROWS
from privbench_core.measure.targets import Referred
from privbench_core.models.fanout import Fanout
from privbench_core.models.group_model import OWNER
from privbench_core.models.linked_lookup import LinkedLookup
from privbench_core.models.linking import Linked
from privbench_core.models.popularity import ByRow
from privbench_core.models.profile import Profile
from privbench_core.models.registry import Model, model_from_dict
from privbench_core.models.rows import Rows
from privbench_core.sampling.children import add_sizes, children_of, numbers_of_children
from privbench_core.sampling.references import Parent
from privbench_core.schema.constraints import ForeignKey
from privbench_core.schema.tables import Schema, Table
from privbench_core.synthesizers.artifact import Artifact
from privbench_core.synthesizers.contract import Key
from privbench_core.synthesizers.steps.released import released_numbers


@dataclass(frozen=True)
class References:
    """Where reference samples come from.

    Attributes:
        schema: The database.
        inputs: Artifacts of profiles, models and fanouts.
        rng: Not the run's seed.
    """

    schema: Schema
    inputs: Mapping[Key, Artifact]
    rng: np.random.Generator

    def profile(self, table: str) -> Profile:
        """Return the released profile of a table."""
        return Profile.from_dict(self.inputs["profile", table].data["profile"])

    def referred(self, key: ForeignKey) -> Referred:
        """Return what is released of the rows of a private parent."""
        return Referred(self.profile(key.parent), released_numbers(self.schema, key, self.inputs))

    def model(self, table: str) -> Model:
        """Return the released model of a table."""
        return model_from_dict(self.inputs["model", table].data["model"])

    def alone(self, table: str, number: int) -> Rows:
        """Return rows of a table regardless of their owners."""
        rows = Rows(number)
        self.model(table).draw(rows, self.rng)
        return rows

    def owned(self, table: Table, fanout: Fanout) -> Rows:
        """Return the places for rows of a table, with the context that their owners give, and no attributes yet."""
        key = table.owner_key
        assert key is not None  # noqa: S101 - a fanout is one along an owner key
        profile, above = self.profile(table.name), self.profile(key.parent)
        scale = min(1.0, REFERENCE_ROWS / max(1.0, fanout.owned + fanout.ownerless))
        parents = self.alone(key.parent, max(1, round(above.size.rows * scale)))
        sizes = {name: discretizer.size for name, discretizer in above.discretizers.items()}
        codes = {name: parents.codes[name] for name in sizes}
        parent = Parent(pa.table({"row": np.arange(parents.n)}), codes, sizes, None)
        known = {name: joint for name, joint in fanout.fanout_tables.items() if name in codes}  # not of siblings
        link = replace(fanout, fanout_tables=known)
        numbers = numbers_of_children(link, parent, round(fanout.owned * scale), self.rng)
        rows, owners = children_of(link, parent, numbers, round(fanout.ownerless * scale), self.rng)
        if key.parent == self.schema.unit:  # else it is not known here which owners are of one unit
            alone = parents.n + np.arange(len(owners))
            add_sizes(rows, np.where(owners < 0, alone, owners), profile, self.model(table.name))
        return rows

    def of_unit(self, table: Table, rows: Rows) -> NDArray[np.int64] | None:
        """Return the number of rows of the unit of each row of `owned` or `linked`, None where that is not known."""
        key = table.owner_key
        if key is None or key.parent != self.schema.unit:
            return None
        return np.bincount(rows.codes[OWNER])[rows.codes[OWNER]]

    def places(self, key: ForeignKey, lookup: LinkedLookup, number: int) -> dict[str, Codes]:
        """Return codes of what so many rows refer to along a key, whichever row to which, by target.

        Without numbers of children of what they refer to: of these parents nobody has drawn any.
        """
        if number == 0:
            return {}
        if isinstance(lookup.popularity, ByRow):
            return lookup.places({}, len(lookup.popularity.counts), number, self.rng)
        scale = number / max(1.0, self.profile(key.child).size.rows)
        parents = self.alone(key.parent, max(1, round(self.profile(key.parent).size.rows * scale)))
        return lookup.at_scale(scale).places(parents.codes, parents.n, number, self.rng)

    def linked(self, table: Table, fanout: Fanout | None) -> Rows:
        """Return rows of a table with their context and their attributes."""
        if fanout is None:
            return self.alone(table.name, max(1, min(REFERENCE_ROWS, round(self.profile(table.name).size.rows))))
        rows = self.owned(table, fanout)
        model = self.model(table.name)
        model = model if fanout.cross_marginals is None else Linked(model, fanout.cross_marginals)
        model.draw(rows, self.rng)
        return rows
