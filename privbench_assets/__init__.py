"""Dagster on top of `privbench_core`: a step of a plan is an asset, an ε a partition. Nothing that core could do."""
