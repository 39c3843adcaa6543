"""Choose the codec of a column, and know the codecs that there are.

A codec follows from the declared domain, or from the type of a column without one. A column whose domain is learned has
no codec until a profile step has paid for one: on the public grid of `log_scale_codec` for ranges, by a stability
threshold for lists of values.
"""

from __future__ import annotations

from privbench_core.columns.categorical import CategoricalCodec, categorical_codec
from privbench_core.columns.codec import Codec
from privbench_core.columns.fanout_bins import FanoutCodec
from privbench_core.columns.grid import Grid, qualified
from privbench_core.columns.intervals import OrderedCodec, StepCodec, equal_width_codec
from privbench_core.columns.made_up import MadeUp
from privbench_core.columns.opaque import FormCodec, OpaqueCodec, length_limit
from privbench_core.columns.surrogates import SurrogateCodec, pattern_codec
from privbench_core.errors import InternalError
from privbench_core.schema.columns import Column, ColumnType, Learn, Pattern, Range, Values
from privbench_core.stored import fields_of

_CODECS = (OrderedCodec, CategoricalCodec, OpaqueCodec, FanoutCodec, SurrogateCodec, StepCodec, FormCodec)
_PARTS = (Grid, MadeUp, Pattern)


def codec_for(column: Column, *, table: str = "") -> Codec:
    """Return the codec of a column with a declared domain, or of a type that needs none.

    Of a column that is relative to another one it is that of the difference. Messages name the ``table``.

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
    logical = column.type.logical
    if logical.fixed_values:
        return categorical_codec(column, logical.fixed_values, table=table)
    if logical.length_unit:
        return OpaqueCodec(where, length_limit(column), column.nullable, column.type)
    if logical.opaque:
        return SurrogateCodec(where, column.nullable)
    raise InternalError(f"{where}: no codec for a column of type {column.type} without a domain; keys need none")


def is_known(codec: Codec) -> bool:
    """Return whether a codec and its parts are exactly of a kind known here: these encode one value at a time."""
    return type(codec) in _CODECS and all(_is_plain(part) for _, part in fields_of(codec))


def _is_plain(value: object) -> bool:
    """Return whether a part of a codec is plain data, all the way down."""
    if type(value) is tuple:
        return all(map(_is_plain, value))
    if type(value) in _PARTS:
        return all(_is_plain(part) for _, part in fields_of(value))
    return type(value) in {str, int, float, bool, type(None), ColumnType}
