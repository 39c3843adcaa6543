"""Engines: what finds the kept rows of views, and counts them. Only they and `backends` read private rows."""
