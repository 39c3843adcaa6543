"""Discretizers: column values <-> small integer codes, NULL included. None of them looks at private rows."""
