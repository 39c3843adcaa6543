"""How many examples a property is tried with."""

from __future__ import annotations

from hypothesis import settings


def examples(few: int, many: int) -> settings:
    """Few of the same ones in every run; many where others are looked for, as `make slow` and seeded bugs do."""
    return settings(max_examples=few if settings().derandomize else many, deadline=None)
