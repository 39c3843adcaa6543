"""The ledger: what has been spent, durably, and what may still be."""
