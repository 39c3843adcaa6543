"""An adversarial audit of the guarantee: ``python -m tests.audit``.

Random specs, of all that the parser accepts; rows that keep what they declare, and no more; neighbours by the one
definition (`tests.helpers.neighbours.removal`). Every measurement is compared with what it claims that one unit moves.
"""
