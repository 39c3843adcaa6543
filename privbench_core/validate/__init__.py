"""Synthetic rows against the schema and its constraints. Looks at no private row."""
