"""How the owner wants a table of the source compared with what it was: the ``change`` part of a table in a spec.

What stands there is public, as all of a spec is. What it finds in the source is not, and is hashed with the workspace's
secret before anybody sees it (`pipeline.observe`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Content:
    """All declared columns of all rows are compared: misses nothing, and reads the whole table."""


@dataclass(frozen=True)
class Watermark:
    """The number of rows and the largest value of a column are compared.

    Attributes:
        column: Of the source; the spec need not declare it. ``xmin`` is PostgreSQL's own mark on every row.
    """

    column: str


@dataclass(frozen=True)
class VersionQuery:
    """The one row that a query of the owner returns is compared.

    Attributes:
        sql: In the words of the source.
    """

    sql: str


Change = Content | Watermark | VersionQuery
