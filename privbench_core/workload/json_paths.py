"""Constant paths into JSON documents, such as ``data->'address'->>'city'``, and what the synthetic rows have there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from privbench_core.schema.columns import Column, ColumnType
from privbench_core.schema.documents import Path, documents_to_learn, parse_document
from privbench_core.schema.tables import Schema, Table
from privbench_core.workload.engine import ResolvedQuery

STEPS = (exp.JSONExtract, exp.JSONExtractScalar)
"""The operators ``->`` and ``->>``."""


class Documents:
    """Columns of documents with keys that are released, or public."""

    def __init__(self, schema: Schema, synthetic: Mapping[str, pa.Table]) -> None:
        self._schema, self._synthetic = schema, synthetic
        self._found: dict[tuple[str, str, Path | None, bool], tuple[bool, pa.Array]] = {}

    def has(self, query: ResolvedQuery, node: exp.Expr) -> bool:
        """Return whether a constant path leads from a column to what some synthetic document has."""
        return (found := self._column_of(query, node)) is not None and self._look_up(*found, node)[0]

    def leaf(self, query: ResolvedQuery, column: exp.Column) -> tuple[exp.Expr, Column, pa.Array] | None:
        """Return the path that begins at a column of a query, what it leads to as a column, and its values."""
        node: exp.Expr = column
        while (above := _step(node)) is not None:
            node = above
        found = None if node is column else self._column_of(query, node)
        if found is None:
            return None
        name = node.sql()
        inside = replace(found[1], name=name) if isinstance(node, exp.JSONExtract) else Column(name, ColumnType.TEXT)
        return node, inside, self._look_up(*found, node)[1]

    def _column_of(self, query: ResolvedQuery, node: exp.Expr) -> tuple[Table, Column] | None:
        while isinstance(node, exp.Paren | exp.Cast | exp.JSONExtract | exp.JSONExtractScalar):
            node = node.this
        found = query.column(node, self._schema) if isinstance(node, exp.Column) else None
        known = found is not None and (found[0].public or found[1] in documents_to_learn(found[0].columns))
        return found if known and found is not None and found[1].type is ColumnType.JSON else None

    def _look_up(self, table: Table, column: Column, node: exp.Expr) -> tuple[bool, pa.Array]:
        path, scalar = _path(node), isinstance(node, exp.JSONExtractScalar)
        place = (table.name, column.name, path, scalar)
        if place not in self._found:
            texts = self._synthetic[table.name][column.name].combine_chunks().dictionary_encode()
            parsed = [_inside(parse_document(text), path) for text in texts.dictionary.to_pylist()]
            written = [_written(values[0], scalar=scalar) if values else None for values in parsed]
            self._found[place] = any(parsed), pa.array(written, pa.string()).take(texts.indices)
        return self._found[place]


def _step(node: exp.Expr) -> exp.Expr | None:
    """Return the path that has one step more than ``node``, if there is one."""
    above = node.parent
    while isinstance(above, exp.Paren) or (isinstance(above, exp.Cast) and isinstance(node, exp.Column)):
        node, above = above, above.parent
    return above if isinstance(above, STEPS) and above.this is node and _path(above) is not None else None


def _path(node: exp.Expr) -> Path | None:
    """Return the keys and positions of a path, None if it is none, or has others than these."""
    if isinstance(node, exp.Paren):
        return _path(node.this)
    if not isinstance(node, STEPS):
        return () if isinstance(node.this if isinstance(node, exp.Cast) else node, exp.Column) else None
    before, path = _path(node.this), node.expression
    if before is None or not isinstance(path, exp.JSONPath):
        return None
    steps = [step.this for step in path.expressions if not isinstance(step, exp.JSONPathRoot)]
    # An empty key is no step that sqlglot writes.
    return (*before, *steps) if all(type(step) in {str, int} and step != "" for step in steps) else None


def _inside(document: Any, path: Path | None) -> list[Any]:
    """Return what a path leads to in a document, as a list of one; an empty list if it leads nowhere."""
    if path is None:
        return []
    for step in path:
        fits = isinstance(document, dict) if isinstance(step, str) else isinstance(document, list)
        there = step in document if isinstance(step, str) else fits and -len(document) <= step < len(document)
        if not (fits and there):
            return []
        document = document[step]
    return [document]


def _written(value: Any, *, scalar: bool) -> str | None:
    if scalar and (value is None or isinstance(value, str)):
        return value
    return json.dumps(value, ensure_ascii=False)
