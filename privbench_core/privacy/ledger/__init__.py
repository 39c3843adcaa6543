"""The ledger: a durable record of what has been spent, and the filter on what may still be."""
