"""The spec file: parse, check and write what the owner decides."""
