"""The spec file: parse, check and write the owner's decisions."""
