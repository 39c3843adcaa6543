"""A first spec for a source, drafted from its catalogue."""
