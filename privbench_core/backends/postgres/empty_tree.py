"""B-trees of PostgreSQL that are as high as those of a full table, with nothing in them.

The planner reads from the first page of an index how high its tree is. Each level adds to the cost of every descent, so
it decides between nested loops and hash joins. The tree made here has one page on each level. The format of pages is
that of the documentation, "Database Page Layout", and of PostgreSQL's ``nbtree.h``.
"""

from __future__ import annotations

import struct
from math import ceil

PAGE = 8192
_HEADER = struct.Struct("<QHHHHHHI")  # LSN, checksum, flags, lower and upper end of free space, special, size, xid
_SPECIAL = struct.Struct("<IIIHH")  # left and right page, level, flags, cycle of VACUUM
_META = struct.Struct("<IIIIII")  # magic, version, root, level, fast root, its level
_MAGIC, _SIZE_AND_VERSION = 0x053162, PAGE | 4
_LEAF, _ROOT = 1, 2
_NORMAL = 1  # of a pointer to an item: that it is in use
_PIVOT = struct.Struct("<HHHH")  # an entry without keys: its child (high, low), number of keys, size and flags
_NO_KEYS = 0x2000 | _PIVOT.size
_LEAF_ROOM, _INNER_ROOM, _SMALLEST = 7329, 5691, 20  # bytes of entries on a page, and of an entry


def tree_height(pages: int, rows: float) -> int:
    """Return the levels above the leaves of a B-tree, from its size.

    >>> tree_height(2, 100), tree_height(276, 100_000), tree_height(2745, 1_000_000)
    (0, 1, 2)
    """
    entry = max((pages - 1) * _LEAF_ROOM / max(rows, 1), _SMALLEST)
    level, height = pages - 1, 0
    while level > 1:
        level, height = ceil(level / max(_INNER_ROOM // entry, 2)), height + 1
    return height


def empty_tree(first_page: bytes, height: int) -> bytes | None:
    """Return the first pages of an index, or None if its first page is not that of an empty B-tree.

    Args:
        first_page: As CREATE INDEX leaves it, without a checksum.
        height: Levels above the leaves.
    """
    magic, version, root, *_ = _META.unpack_from(first_page, _HEADER.size)
    if magic != _MAGIC or root:
        return None
    meta = bytearray(first_page)
    top = height + 1
    _META.pack_into(meta, _HEADER.size, magic, version, top, height, top, height)
    return bytes(meta) + b"".join(_page(level, is_root=level == height) for level in range(height + 1))


def _page(level: int, *, is_root: bool) -> bytes:
    """Return the only page of a level, which is after the pages of those below it."""
    page = bytearray(PAGE)
    special = PAGE - _SPECIAL.size
    flags = (_ROOT if is_root else 0) | (0 if level else _LEAF)
    lower, upper = _HEADER.size, special
    if level:
        upper -= _PIVOT.size
        struct.pack_into("<I", page, lower, upper | _NORMAL << 15 | _PIVOT.size << 17)
        _PIVOT.pack_into(page, upper, 0, level, 0, _NO_KEYS)
        lower += 4
    _HEADER.pack_into(page, 0, 0, 0, 0, lower, upper, special, _SIZE_AND_VERSION, 0)
    _SPECIAL.pack_into(page, special, 0, 0, level, flags, 0)
    return bytes(page)
