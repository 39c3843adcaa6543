"""Parse what of a table stands in the DDL alone: computed columns, partitions and views."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from privbench_core.schema.columns import EnumType, Generated
from privbench_core.schema.partitions import Partition, Partitioning
from privbench_core.schema.tables import View
from privbench_core.spec import forms
from privbench_core.spec.fields import Node

# A type that matches cannot end the definition of its column in the DDL.
_PLAIN_TYPE = re.compile(r"[a-z][a-z0-9_ ]*(\(\d+(,\d+)?\))?[a-z ]*(\[\])*")


def parse_generated(node: Node, enums: Mapping[str, EnumType]) -> tuple[Generated, ...]:
    """Return the columns that the database computes."""
    listed = node.inside("generated")
    found = []
    for name in listed.fields:
        item = listed.inside(name, where=f"{node.where}.{name}")
        column = item.build(forms.GENERATED, partial(Generated, name))
        if column is not None and column.sql_type not in enums and not _PLAIN_TYPE.fullmatch(column.sql_type):
            item.wrong("sql_type", forms.GENERATED.keys["sql_type"].todo)
        elif column is not None:
            found.append(column)
    return tuple(found)


def parse_partitioning(table: Node) -> Partitioning | None:
    """Return how the table is partitioned, None if it is not."""
    node = table.inside("partitioned")
    found = node.read(forms.PARTITIONED) if node.fields else {}
    parts = node.items(found.get("partitions"), forms.PARTITION, Partition)
    return Partitioning(found["by"], found["columns"], parts) if parts and None not in found.values() else None


def parse_views(node: Node) -> tuple[View, ...]:
    """Return the views of the whole database."""
    listed = node.inside("views", where="views")
    found = (listed.inside(name, where=name).build(forms.VIEW, partial(View, name)) for name in listed.fields)
    return tuple(view for view in found if view is not None)
