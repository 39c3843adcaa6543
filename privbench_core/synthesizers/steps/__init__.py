"""Steps that synthesizers share: each module makes one kind of `Step`.

Importing any of them makes all that steps store readable (`privbench_core.stored`).
"""

from privbench_core.groups import group_model
from privbench_core.links import fanout, linked_lookup
from privbench_core.marginals import measured, spn
from privbench_core.profiles import profile

__all__ = ["fanout", "group_model", "linked_lookup", "measured", "profile", "spn"]
