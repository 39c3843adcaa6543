"""Runs plans: the workspace that holds ledger and releases, and the runner that pays for a step once."""
