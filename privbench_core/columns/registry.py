"""Choose the codec of a column, and read codecs from their stored descriptions.

A codec follows from the declared domain, or from the type of a column without one. A column whose domain is learned has
no codec until a profile step has paid for one: on the public grid of `LogScaleCodec` for ranges, by a stability
threshold for lists of values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from privbench_core.columns.categorical import CategoricalCodec, boolean_codec, categorical_codec
from privbench_core.columns.codec import Codec
from privbench_core.columns.equal_width import EqualWidthCodec, equal_width_codec
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.grid import Grid, qualified
from privbench_core.columns.log_scale import LogScaleCodec
from privbench_core.columns.made_up import MadeUp
from privbench_core.columns.opaque import OpaqueCodec, opaque_codec
from privbench_core.columns.patterns import PatternCodec, pattern_codec
from privbench_core.columns.step_classes import StepCodec
from privbench_core.columns.surrogates import UuidCodec, uuid_codec
from privbench_core.columns.variable_width import VariableWidthCodec
from privbench_core.errors import InternalError, ReleaseError
from privbench_core.schema.columns import Column, ColumnType, Learn, Pattern, Range, Values

_KINDS: dict[str, type[Any]] = {
    "interval": EqualWidthCodec,
    "cuts": VariableWidthCodec,
    "list": CategoricalCodec,
    "length": OpaqueCodec,
    "magnitude": LogScaleCodec,
    "group size": FanoutCodec,
    "uuid": UuidCodec,
    "pattern": PatternCodec,
    "step": StepCodec,
}
# Codecs of columns without a domain, by the kind that their type names.
_WITHOUT_DOMAIN: dict[str, Callable[..., Codec]] = {
    "list": boolean_codec,
    "length": opaque_codec,
    "uuid": uuid_codec,
}
_PLAIN = (str, int, float, bool, type(None), ColumnType)


def codec_for(column: Column, *, table: str = "") -> Codec:
    """Return the codec of a column with a declared domain, or of a type that needs none.

    Of a column that is relative to another one it is that of the difference.

    Args:
        column: An attribute.
        table: Its table, for messages.

    Raises:
        SpecError: The domain does not fit the type.
        InternalError: The domain is still to be learned, or there is none because the column is a key.
    """
    where, column = qualified(column, table), column.modelled
    match column.domain:
        case Range(low, high, cells, step):
            return equal_width_codec(column, low, high, cells, step=step, table=table)
        case Values(values):
            return categorical_codec(column, values, table=table)
        case Pattern():
            return pattern_codec(column, column.domain, table=table)
        case Learn():
            raise InternalError(f"{where}: the domain is to be learned, and no profile step has replaced it yet")
    if column.type.logical.codec is None:
        raise InternalError(f"{where}: no codec for a column of type {column.type} without a domain; keys need none")
    return _WITHOUT_DOMAIN[column.type.logical.codec](column, table=table)


def codec_from_dict(description: dict[str, Any]) -> Codec:
    """Return the codec that `to_dict` described; ReleaseError if this version does not know its kind.

    >>> codec = codec_for(Column("age", ColumnType.INTEGER, Range(0, 110)))
    >>> codec_from_dict(codec.to_dict()) == codec
    True
    """
    kind = _KINDS.get(description.get("codec", ""))
    if kind is None:
        raise ReleaseError(
            f"a stored codec is of kind {description.get('codec')!r}; known: {', '.join(sorted(_KINDS))}"
        )
    codec: Codec = kind.from_dict(description)
    return codec


def is_known(codec: Codec) -> bool:
    """Return whether a codec and its parts are exactly of a kind known here: these encode one value at a time."""
    kind = type(codec)
    return kind in _KINDS.values() and all(_is_plain(getattr(codec, field.name)) for field in fields(kind))  # type: ignore[arg-type]


def _is_plain(value: object) -> bool:
    """Return whether a part of a codec is plain data, all the way down."""
    if type(value) is tuple:
        return all(_is_plain(part) for part in value)
    if type(value) in {Grid, MadeUp, Pattern}:
        return all(_is_plain(getattr(value, field.name)) for field in fields(value))  # type: ignore[arg-type]
    return type(value) in _PLAIN
