"""Leaves of JSON documents as columns, and documents of their leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privbench_core.guards import DOCUMENT_LEAVES
from privbench_core.schema.columns import Column
from privbench_core.schema.documents import (
    SHAPE,
    TYPED,
    WHOLE,
    Leaf,
    Path,
    documents_to_learn,
    filled,
    find_leaf,
    known_leaves,
    leaves_of,
    parse_document,
)
from privbench_core.schema.tables import Table

_DEFAULTS = {
    "number": 0,
    "integer": 0,
    "boolean": False,
    "date": "2000-01-01",
}  # of a leaf that no row has a value for; else empty


def leaf_values(documents: pa.ChunkedArray, leaf: Leaf) -> pa.ChunkedArray:
    """Return a leaf of each document; NULL where the document is NULL, or has none there."""
    return leaves_values(documents, [leaf])[0]


def leaves_values(documents: pa.ChunkedArray, leaves: Sequence[Leaf]) -> list[pa.ChunkedArray]:
    """Return the `leaf_values` of several leaves, each document parsed once."""
    texts = documents.combine_chunks().cast(pa.string()).dictionary_encode()
    parsed = [parse_document(text) for text in texts.dictionary.to_pylist()]
    columns = (pa.array([leaf.value_in(each) for each in parsed], leaf.column.arrow_type) for leaf in leaves)
    return [pa.chunked_array([column.take(texts.indices)]) for column in columns]


def frequent_leaves(document: Column, documents: pa.ChunkedArray) -> list[Leaf]:
    """Return the shape of documents and the leaves of their most frequent shapes, one leaf for all items of an array.

    `DOCUMENT_LEAVES` leaves at most. They depend on single rows: never to be released.
    """
    (shapes,) = leaves_values(documents, [shape := Leaf(document, SHAPE)])
    counts = sorted(pc.value_counts(shapes.drop_null()).to_pylist(), key=lambda each: -each["counts"])
    found = known_leaves(document, (each["values"] for each in counts[:DOCUMENT_LEAVES]))
    return [shape, *list(dict.fromkeys(leaf.family for leaf in found))[:DOCUMENT_LEAVES]]


def with_documents(table: Table, columns: Mapping[str, pa.Array], rng: np.random.Generator) -> dict[str, pa.Array]:
    """Return columns of drawn rows, with documents in place of their leaves."""
    made = dict(columns)
    for document in documents_to_learn(table.attributes):
        leaves = {name for name in columns if find_leaf((document,), name) is not None}
        if leaves:
            made[document.name] = _composed(document, {name: made.pop(name) for name in sorted(leaves)}, rng)
    return made


def _composed(document: Column, columns: Mapping[str, pa.Array], rng: np.random.Generator) -> pa.Array:
    whole = columns.get(Leaf(document, WHOLE).name)
    if whole is not None:
        listed = whole.dictionary_encode()
        texts = [json.dumps(json.loads(text), ensure_ascii=False) for text in listed.dictionary.to_pylist()]
        return pa.array(texts, document.arrow_type).take(listed.indices)
    named = (columns.get(Leaf(document, kind).name) for kind in (SHAPE, TYPED))
    found = next((values for values in named if values is not None), None)
    if found is None:
        return _of_leaves(document, columns)
    shapes = found.dictionary_encode()
    codes = shapes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    made: list[str | None] = [None] * len(codes)
    for code, text in enumerate(shapes.dictionary.to_pylist()):
        rows, shape = np.flatnonzero(codes == code), json.loads(text)
        parts = [_scalars(leaf, columns, rows, rng) for leaf in leaves_of(document, shape)]
        for place, row in enumerate(rows.tolist()):
            scalars = (part[place] for part in parts)
            made[row] = json.dumps(filled(shape, scalars), ensure_ascii=False)
    return pa.array(made, document.arrow_type)


def _of_leaves(document: Column, columns: Mapping[str, pa.Array]) -> pa.Array:
    """Return the documents that have all the leaves that were drawn, and no others."""
    trees: list[Any] = [{} for _ in range(len(next(iter(columns.values()))))]
    for leaf in filter(None, (find_leaf((document,), name) for name in columns)):
        for row, value in enumerate(columns[leaf.name].to_pylist()):
            if value is not None:
                trees[row] = _with(trees[row], leaf.path, leaf.written(value))
    empty = None if document.nullable else "[]" if document.is_array else "{}"
    made = [empty if tree == {} else json.dumps(_plain(tree), ensure_ascii=False) for tree in trees]
    return pa.array(made, document.arrow_type)


def _with(tree: Any, path: Path, value: Any) -> Any:
    """Return a tree with a value at a place; a scalar that is on the way gives way."""
    if not path:
        return value
    inside = tree if isinstance(tree, dict) else {}
    return {**inside, path[0]: _with(inside.get(path[0]), path[1:], value)}


def _plain(tree: Any) -> Any:
    """Return a tree with arrays in place of what has positions: gaps close up."""
    if not isinstance(tree, dict):
        return tree
    positions = sorted(step for step in tree if isinstance(step, int))
    if positions:
        return [_plain(tree[step]) for step in positions]
    return {key: _plain(tree[key]) for key in sorted(tree)}


def _scalars(
    leaf: Leaf, columns: Mapping[str, pa.Array], rows: NDArray[np.int64], rng: np.random.Generator
) -> list[Any]:
    """Return the scalars of a leaf in rows whose shape has it; where none was drawn, that of another such row."""
    if leaf.name not in columns and leaf.kind == "integer":
        leaf = replace(leaf, kind="number")  # as `known_leaves` has it
    values = columns.get(leaf.name)
    if values is None or values.null_count == len(values):
        return [_DEFAULTS.get(leaf.kind, "")] * len(rows)
    there = values.is_valid().to_numpy(zero_copy_only=False)
    missing = ~there[rows]
    donors = rows[~missing] if not missing.all() else np.flatnonzero(there)
    take = np.where(missing, rng.choice(donors, len(rows)), rows)
    return [leaf.written(value) for value in values.take(pa.array(take)).to_pylist()]
