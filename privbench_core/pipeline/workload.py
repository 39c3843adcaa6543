"""The queries that a spec has published with the data. They are read before anything is spent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privbench_core.files import file_name
from privbench_core.spec.model import Spec

if TYPE_CHECKING:
    from privbench_core.workload.statements import Workload


def public_workload(spec: Spec) -> dict[str, Workload]:
    """The spec's workload by the name that it gets in a bundle; empty if the spec declares none.

    Raises:
        SourceError: The file cannot be read, or holds no queries.
    """
    if spec.workload is None:
        return {}
    from privbench_core.workload.statements import read_workload  # brings in sqlglot, for those who have a workload

    return {file_name(spec.workload.stem): read_workload(spec.workload)}
