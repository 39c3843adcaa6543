"""Rows against units: how many rows a unit has, and how habits follow that number."""
