"""Where private rows are counted: ``engine`` of a spec."""

from __future__ import annotations

import re
from dataclasses import replace

from privbench_core.errors import SourceError, SpecError, did_you_mean
from privbench_core.schema.change import Content
from privbench_core.schema.tables import Schema
from privbench_core.spec.fields import Node
from privbench_core.spec.location import check_spark_url, is_spark_url, is_url, split_spark_url
from privbench_core.spec.model import DEFAULT_ENGINE, Spec

ENGINES = {
    DEFAULT_ENGINE: "spark for Spark catalogues, duckdb for Parquet files with many private rows, else memory",
    "memory": "all rows are read into this process",
    "duckdb": "private rows are copied into a temporary file of this machine and counted there, in little memory",
    "source": "private rows are counted in the source's own PostgreSQL, in temporary tables; counts travel, not rows",
    "spark": "private rows are copied to a Spark cluster's own executors and counted there; counts travel, not rows",
}
_CLUSTER = re.compile(r"sc://.|\$\{\w+\}")


def check_engine(node: Node, engine: str, source: str, cluster: object, schema: Schema) -> None:
    """Report what is wrong with the engine and the cluster that a spec names to the problems of ``node``."""
    if cluster is not None and not (isinstance(cluster, str) and _CLUSTER.match(cluster)):
        # The text is not repeated: it may hold a token.
        node.problems.lines.append("cluster: not a URL of Spark Connect; write sc://host:port, or ${VARIABLE}")
        return
    if is_spark_url(source):
        try:
            check_spark_url(source)
        except SourceError as error:
            node.problems.lines.append(str(error))
        if cluster is not None and split_spark_url(cluster)[0] != split_spark_url(source)[0]:
            found = "cluster is not the one that source names, and rows are counted where their tables are"
            node.problems.add("spec", found, "remove cluster")
    problem = _problem(engine, source, cluster, schema)
    if problem:
        node.problems.add("spec", *problem)


def with_engine(spec: Spec, engine: str | None) -> Spec:
    """Return the spec with another engine, if one is named; SpecError if it cannot count this spec's rows."""
    if engine is None:
        return spec
    problem = _problem(engine, spec.source, spec.cluster, spec.schema)
    if problem:
        raise SpecError("--engine: " + "; ".join(problem))
    return replace(spec, engine=engine)


def engine_in_words(spec: Spec) -> list[str]:
    """Return what the owner should know of the engine before a run, a sentence each."""
    lines = [f"Engine: {spec.engine}; {ENGINES[spec.engine]}."]
    private = [table.name for table in spec.schema.private_tables]
    compared = [name for name in private if isinstance(spec.changes.get(name, Content()), Content)]
    if spec.engine in {"source", "spark"} and compared:
        todo = " declare change: {watermark: ..} or {sql: ..} to leave them where they are."
        lines.append(
            f"Rows of {', '.join(compared)} still pass through this process once, to see whether they have changed"
            + (f";{todo}" if spec.engine == "source" or is_spark_url(spec.source) else ".")  # files have neither
        )
    return lines


def _problem(engine: str, source: str, cluster: str | None, schema: Schema) -> tuple[str, str] | None:
    """Return what is wrong and what to do, None if the engine can count these rows, as far as a spec tells."""
    if engine not in ENGINES:
        return f"there is no engine {engine!r}", did_you_mean(engine, ENGINES)
    if engine == "spark" and not is_spark_url(source):
        if cluster is None and not source.startswith("${"):
            return "engine spark needs a cluster", "add cluster: sc://host:port, the URL of its Spark Connect"
        if is_url(source):
            found = "engine spark counts in folders of Parquet files and Spark catalogues, and this source is neither"
            return found, "choose engine duckdb, source or memory"
    if engine == "source" and not source.startswith(("postgresql", "${")):
        others = "spark, duckdb or memory" if is_spark_url(source) else "duckdb or memory"
        return "engine source counts in PostgreSQL, and this source is not one", f"choose engine {others}"
    if engine not in {"source", "spark"}:
        return None
    numbered = [table.name for table in schema.tables if table.row_id and not table.public]
    if numbered:
        found = f"engine {engine} cannot number the rows of {', '.join(numbered)} (row_id: generated)"
        return found, "choose engine duckdb or memory"
    return None
