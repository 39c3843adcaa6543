"""What a relational database is, for us: frozen values that every layer shares.

Keys are tuples throughout: a single-column key is a tuple of one. Everything in here is *public* by declaration
(`docs/privacy.md`): names, types, keys, declared domains, public tables and the bounds on children per parent.
"""
