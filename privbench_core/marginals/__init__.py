"""Marginals of one table: measured, fitted to models, and drawn from these.

Modules called ``measure_*`` hold a curator and spend; all others are post-processing of released numbers.
"""
