"""Partitions: one per ε of the spec, the same for every asset of a database.

ε is one dimension and the only one. A second (tables, say) would break fan-in, because a step of several tables would
then depend on partitions of its own definition, and the automation that refreshes a benchmark cannot follow that.
"""

from __future__ import annotations

import dagster as dg

from privbench_core.spec.model import Spec


def epsilon_name(epsilon: float) -> str:
    """The partition key of an ε: short, and the same for equal numbers.

    >>> epsilon_name(0.8), epsilon_name(2.0)
    ('0.8', '2')
    """
    return f"{epsilon:.12g}"


def epsilon_partitions(spec: Spec) -> dg.StaticPartitionsDefinition:
    """One partition per ε, in the order of the spec."""
    return dg.StaticPartitionsDefinition([epsilon_name(epsilon) for epsilon in spec.epsilons])
