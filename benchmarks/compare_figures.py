"""What `compare` measures of a synthetic database: one number per figure of `paired.FIGURES`, smaller is better.

A database is prepared once, and its folder is all that other processes need: the spec, and the queries, drawn with a
seed. So both states of the code are given the same rows and are asked the same, and are judged by this checkout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.workloads import Case, Tables, source_rows
from privbench_core.errors import PrivbenchError
from privbench_core.evaluation import shuffled_reference
from privbench_core.evaluation.marginals import column_subsets, encode_tables, subset_distances
from privbench_core.evaluation.q_error import Recipe, generate_workload, run_workload
from privbench_core.schema.tables import Schema
from privbench_core.spec.load import dump_spec, load_spec
from privbench_core.spec.model import Spec
from privbench_core.workload import read_workload
from privbench_core.workload.engine import Engine
from tests.helpers.row_figures import coarsen, row_figures

_RECIPE = Recipe(queries=60, max_joins=3, max_predicates=2, seed=1)
_SECONDS = 5.0  # for a query: where it takes so long, the database is far too large
_MOST_SUBSETS = {2: 400, 3: 60}  # of the columns of a table; drawn once where there are more
_FROM_ROWS = {
    "columns": "one_way",
    "joined": "joined",
    "further": "further",
    "fanout": "fanout",
    "popularity": "popularity",
    "means": "means",
    "siblings": "siblings",
}
_PROJECT = Path(__file__).resolve().parents[1]
_JUDGES = (
    "privbench_core/evaluation",
    "privbench_core/workload",
    "tests/helpers/row_figures.py",
    "benchmarks/compare_figures.py",
)


@dataclass(frozen=True)
class Prepared:
    """A database to synthesize, as other processes find it.

    Attributes:
        name: Of the database.
        spec: The file of its spec; the queries are in a file beside it.
        fingerprint: Of the rows, the spec, the queries, and of the code that judges.
    """

    name: str
    spec: Path
    fingerprint: str

    @classmethod
    def of(cls, name: str, spec: Spec) -> Prepared:
        """Save a spec, read the rows, and draw queries on them."""
        case = Case.of(spec, lambda given, rows: {"": generate_workload(given.schema, rows, _RECIPE)})
        workload = case.workloads[""].to_sql()
        _queries(case.spec.path).write_text(workload, encoding="utf-8")
        said = dump_spec(replace(case.spec, source="", path=Path("spec.yaml"), state=Path("state")))
        found = blake2b(f"{said}\x1f{workload}\x1f{judge_fingerprint()}".encode(), digest_size=8)
        for table in sorted(case.source):
            rows = case.source[table]
            found.update(table.encode())
            with pa.BufferOutputStream() as stream:
                with pa.ipc.new_stream(stream, rows.schema) as to:
                    to.write_table(rows.combine_chunks())
                found.update(stream.getvalue())
        return cls(name, case.spec.path, found.hexdigest())


class Judge:
    """Measures synthetic databases beside their source, which is read and counted once.

    Args:
        spec: The file of a `Prepared` database.
    """

    def __init__(self, spec: Path) -> None:
        loaded = load_spec(spec)
        self._schema, self._rows = loaded.schema, source_rows(loaded)
        self._workload = read_workload(_queries(spec))
        self._engine = Engine(self._rows, _SECONDS)

    def figures(self, made: Tables) -> dict[str, float]:
        """Return the figures of `paired.FIGURES` that there are: no joined pairs where there are no keys.

        A query that is not answered in time counts as infinitely wrong, and a percentile that falls on it is left out.

        Raises:
            PrivbenchError: A private table was not made.
        """
        missing = [table.name for table in self._schema.private_tables if table.name not in made]
        if missing:
            raise PrivbenchError(f"{', '.join(missing)}: not made, so there is nothing to judge")
        made = {**self._rows, **made}  # public tables are as they were
        mean = row_figures(self._schema, self._rows, made).mean()
        answers = run_workload(self._workload, self._engine, made, timeout=_SECONDS)
        errors = np.concatenate([answers.errors, np.full(len(answers.failed), np.inf)])
        found = {
            "rows": _log_sizes(self._schema, self._rows, made),
            **{name: mean[kind] for name, kind in _FROM_ROWS.items()},
            **_subset_figures(self._schema, self._rows, made),
            **{name: _percentile(errors, rank) for name, rank in (("q_median", 50), ("q_95th", 95))},
        }
        return {name: float(value) for name, value in found.items() if math.isfinite(value)}

    def of_shuffled(self, seed: int) -> dict[str, float]:
        """Return the figures of the source with the columns of every table shuffled, foreign keys as a whole."""
        return self.figures(shuffled_reference(self._schema, self._rows, seed))


def _queries(spec: Path) -> Path:
    return spec.with_suffix(".sql")


def judge_fingerprint() -> str:
    """Fingerprint of the code that judges: figures of different judges are not compared."""
    return tree_fingerprint(_PROJECT, _JUDGES)


def tree_fingerprint(folder: Path, below: Sequence[str]) -> str:
    """Fingerprint of the files below some places of a checkout, by their names and contents."""
    files = [file for place in below for file in (folder / place, *(folder / place).rglob("*")) if file.is_file()]
    found = blake2b(digest_size=8)
    for file in sorted(files):
        if "__pycache__" not in file.parts:
            found.update(f"\x1e{file.relative_to(folder)}\x1f".encode() + file.read_bytes())
    return found.hexdigest()


def _log_sizes(schema: Schema, source: Tables, made: Tables) -> float:
    """Mean |ln(rows / rows of the source)| of private tables; an empty one counts as one row."""
    sizes = [(source[table.name].num_rows, made[table.name].num_rows) for table in schema.private_tables]
    return float(np.mean([abs(math.log(max(other, 1) / max(true, 1))) for true, other in sizes]))


def _subset_figures(schema: Schema, source: Tables, made: Tables) -> Mapping[str, float]:
    """Mean distances of pairs and triples of columns of one table, coded as in `row_figures`."""
    true, other = coarsen(encode_tables(schema, source), encode_tables(schema, made, source))
    distances: dict[int, list[float]] = {order: [] for order in _MOST_SUBSETS}
    for name in (table.name for table in schema.private_tables):
        a, b = true[name], other[name]
        for order, most in _MOST_SUBSETS.items():
            subsets = column_subsets(len(a.sizes), order, most).subsets
            distances[order] += [each.tvd for each in subset_distances(a.codes, b.codes, a.sizes, subsets)]
    means = {order: float(np.mean(found)) if found else math.nan for order, found in distances.items()}
    return {"pairs": means[2], "triples": means[3]}


def _percentile(errors: np.ndarray, rank: float) -> float:
    """Between the two errors beside the rank; the higher one where some are infinite."""
    method = "linear" if np.isfinite(errors).all() else "higher"
    return float(np.percentile(errors, rank, method=method)) if errors.size else math.nan
