"""Discretizers: column values <-> small integer codes, NULL included. None of them reads private rows."""
