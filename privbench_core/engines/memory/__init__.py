"""All rows in memory, as Arrow and numpy arrays: the engine of small data, and what the others must agree with."""
