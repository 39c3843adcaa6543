"""How close a synthetic database is to its source. Everything here looks at private rows and is for the owner only.

The figures are not differentially private: similarity metrics let an attacker rebuild outliers. They belong in internal
reports, never in a published bundle.
"""
