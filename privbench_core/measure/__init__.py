"""The only spenders: what holds a curator."""
