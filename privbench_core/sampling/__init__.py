"""From released models to rows: counts, attributes, references, keys, values. Post-processing, so free and seeded."""
