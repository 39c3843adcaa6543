"""Synthesizers: each turns a schema and a budget into a plan of priced steps. Found by entry point."""
