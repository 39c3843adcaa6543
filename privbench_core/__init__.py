"""Differentially private benchmarks from private relational databases. No orchestrator in here."""

__version__ = "0.1.0"
