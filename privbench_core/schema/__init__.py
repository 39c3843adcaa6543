"""What a database is and what its owner declared about it: values, spec file, reflection of a live source, DDL."""
