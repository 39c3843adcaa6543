"""The only package that reads private rows, draws noise and spends budget. See ``docs/privacy.md``."""
