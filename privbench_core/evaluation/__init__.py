"""Measure how close a synthetic database is to its source. Everything here reads private rows, for the owner only.

The figures are not differentially private: similarity metrics let an attacker reconstruct outliers. They belong in
internal reports, never in a published bundle.
"""
