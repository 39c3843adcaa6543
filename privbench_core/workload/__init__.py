"""Queries as public text: parsing, name resolution, counting on given tables, and rebinding of literals."""
