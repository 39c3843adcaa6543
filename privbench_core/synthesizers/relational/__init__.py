"""Tables by any single-table method, and relationships between them that are learned."""
