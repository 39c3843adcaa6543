"""Queries as public text: parsing, naming, counting on given tables, and re-binding of literals."""
