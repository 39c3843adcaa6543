"""Check synthetic rows against the schema and its constraints. Reads no private row."""
