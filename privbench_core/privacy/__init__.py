"""The only place where private rows are looked at, noise is drawn and budget is spent. See ``docs/privacy.md``."""
