"""Component: a benchmark as Dagster's components declare it, beside `build_defs` for Python.

A ``defs.yaml`` names the type ``privbench_assets.component.Benchmark`` and, under ``attributes``, the spec file.
"""

# No postponed annotations here: Dagster looks at the type of `spec` itself.

from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from privbench_assets.build import build_defs


@dataclass
class Benchmark(dg.Component, dg.Resolvable):
    """A differentially private benchmark of one database: its assets, checks, jobs, schedules and sensor.

    Attributes:
        spec: The spec file of the database, relative to the component's folder. `privbench init` drafts one.
    """

    spec: str

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions of the database.

        Raises:
            SpecError: The spec is wrong; the message lists every problem.
        """
        return build_defs(Path(context.path, self.spec))
