"""Codecs: column values <-> small integer cells, NULL included. A codec is public: it never looks at private rows."""
