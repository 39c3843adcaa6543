"""Profiles: learned domains, bins, one-way marginals, joints, and how long dates come after others.

Importing any of it makes stored codecs readable (`privbench_core.stored`).
"""

from privbench_core.columns import registry

__all__ = ["registry"]
