"""Choose the codec of a column, and read codecs from their stored descriptions.

A codec follows from the declared domain, or from the type of a column without one. A column whose domain is learned has
no codec until a profile step has paid for one: on the public grid of `log_scale_codec` for ranges, by a stability
threshold for lists of values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from privbench_core.columns.categorical import CategoricalCodec, boolean_codec, categorical_codec
from privbench_core.columns.codec import Codec
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.grid import Grid, qualified
from privbench_core.columns.intervals import OrderedCodec, StepCodec, equal_width_codec
from privbench_core.columns.made_up import MadeUp
from privbench_core.columns.opaque import OpaqueCodec, opaque_codec
from privbench_core.columns.surrogates import SurrogateCodec, pattern_codec, uuid_codec
from privbench_core.errors import InternalError, ReleaseError
from privbench_core.schema.columns import Column, ColumnType, Learn, Pattern, Range, Values

_KINDS: dict[str, type[Any]] = {
    "intervals": OrderedCodec,
    "list": CategoricalCodec,
    "length": OpaqueCodec,
    "group size": FanoutCodec,
    "surrogate": SurrogateCodec,
    "step": StepCodec,
}
_PARTS = (Grid, MadeUp, Pattern)
# Codecs of columns without a domain, by the kind that their type names.
_WITHOUT_DOMAIN: dict[str, Callable[..., Codec]] = {
    "list": boolean_codec,
    "length": opaque_codec,
    "uuid": uuid_codec,
}


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


def codec_to_dict(codec: Codec) -> dict[str, Any]:
    """Return a JSON-able description of a codec: its kind and its parts."""
    kind = next(name for name, each in _KINDS.items() if each is type(codec))
    return {"codec": kind, **described(codec)}


def codec_from_dict(description: Mapping[str, Any]) -> Codec:
    """Return the codec that `codec_to_dict` described; ReleaseError if this version does not know its kind.

    >>> codec = codec_for(Column("age", ColumnType.INTEGER, Range(0, 110)))
    >>> codec_from_dict(codec_to_dict(codec)) == codec
    True
    """
    kind = _KINDS.get(description.get("codec", ""))
    if kind is None:
        known = ", ".join(sorted(_KINDS))
        raise ReleaseError(f"a stored codec is of kind {description.get('codec')!r}; known: {known}")
    codec: Codec = read(kind, description)
    return codec


def is_known(codec: Codec) -> bool:
    """Return whether a codec and its parts are exactly of a kind known here: these encode one value at a time."""
    return type(codec) in _KINDS.values() and all(map(_is_plain, _fields(codec).values()))


def _is_plain(value: object) -> bool:
    """Return whether a part of a codec is plain data, all the way down."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    if type(value) in _PARTS:
        return all(map(_is_plain, _fields(value).values()))
    return type(value) in {str, int, float, bool, type(None), ColumnType}


def described(value: Any) -> Any:
    """Return a dataclass, or a part of one, as JSON has it: an object of its fields, all the way down."""
    if isinstance(value, tuple):
        return [described(part) for part in value]
    if is_dataclass(value):
        return {name: described(part) for name, part in _fields(value).items()}
    return str(value) if isinstance(value, ColumnType) else value


def read(kind: type[Any], description: Mapping[str, Any]) -> Any:
    """Return the inverse of `described` for a dataclass of this class."""
    types = get_type_hints(kind)
    return kind(**{field.name: _read_part(types[field.name], description[field.name]) for field in fields(kind)})


def _read_part(kind: Any, stored: Any) -> Any:
    if isinstance(stored, list):
        return tuple(_read_part(None, part) for part in stored)
    if isinstance(stored, dict):
        return read(next(part for part in _PARTS if part in (kind, *get_args(kind))), stored)
    return ColumnType(stored) if kind is ColumnType else stored


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
