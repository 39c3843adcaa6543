"""Figures for ``benchmarks/README.md``: each method runs in its own process, beside its peers, on the same codes."""
