"""Column types, one entry each: all that the rest of the project knows of a type follows from its entry.

To add a column type, write its class (`numeric`, `times` and `textual` hold the present ones) and make it a member of
`registry.ColumnType`. The entry says how a spec declares its values, which Arrow and SQL types hold them, what a
catalogue calls it and how its surrogate keys are made. A type that needs a codec of its own gets it in
`columns.registry`.

The entries import neither pyarrow nor numpy at module level, so that reading a spec stays fast.
"""
