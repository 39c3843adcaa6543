"""Weighted contingency counts of coded columns."""
