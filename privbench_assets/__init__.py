"""Dagster on top of `privbench_core`: every step of a plan as an asset, every ε as a partition. Nothing that core could do."""
