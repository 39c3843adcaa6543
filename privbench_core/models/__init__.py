"""What noisy measurements are fitted into: sum-product networks whose leaves are marginals or pairwise models.

Importing any of it makes all that steps store readable (`privbench_core.stored`).
"""

from privbench_core.columns import registry
from privbench_core.models import fanout, group_model, latent, linked_lookup, measured, profile, spn

__all__ = ["fanout", "group_model", "latent", "linked_lookup", "measured", "profile", "registry", "spn"]
