"""Stats: six tables of a real question-and-answer site, its published queries, and random joins by MSCN's recipe.

The unit is a user with everything that hangs on their posts, along four foreign keys. What the privacy unit asks of the
data is done to it first, and is stated in the README:

- Three more keys refer to a second private parent with up to thousands of rows each. A guarantee that covers those
  costs more noise than there is signal (`docs/privacy.md`, "Several private parents"): their columns are plain numbers.
- Posts of deleted users have no owner, so no unit would protect them: they are left out, with their votes and links.
- Tags are the site's public list, without the post that explains each: that one is private.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.data import data_folder, read_table
from benchmarks.measure import Runs
from benchmarks.report import machine
from benchmarks.workloads import Case, Tables, measure
from privbench_core.errors import PrivbenchError
from privbench_core.evaluation.q_error import Recipe, generate_workload, run_workload
from privbench_core.schema.columns import Column, ColumnType, Learn, Range
from privbench_core.schema.constraints import ForeignKey, OnUnitRemoved
from privbench_core.schema.tables import Schema, Table
from privbench_core.spec.model import Spec
from privbench_core.workload import Workload, read_workload
from privbench_core.workload.engine import UnansweredError, resolve

EPSILONS = (0.8, 3.2)
DELTA = 1e-9
RUNS = Runs(1, EPSILONS, (DELTA,))
TABLES = ("users", "posts", "votes", "badges", "postLinks", "tags")
MULTI_JOIN = "multi-join, 1 to 4 joins"
ON_POSTS = ("votes", "postLinks")
_I = ColumnType.INTEGER
# The site opened in 2009 to 2010, and the dump was published in September 2014.
_TIME = Range("2009-01-01T00:00:00", "2014-12-31T23:59:59", 1024)
# The documentation of the dump says that votes have no time of day, so that nobody's are recognised.
_DAYS = Range("2009-01-01T00:00:00", "2014-12-31T00:00:00", step="P1D")


def spec(source: Path, folder: Path) -> Spec:
    """The spec, in ``folder``. Domains are round numbers that the site's rules and its age suggest, not its rows."""
    users = Table(
        "users",
        (
            Column("Id", _I),
            Column("Reputation", _I, Range(1, 100_000, 4096)),
            Column("CreationDate", ColumnType.TIMESTAMP, _TIME),
            Column("Views", _I, Range(0, 50_000, 4096)),
            Column("UpVotes", _I, Range(0, 20_000, 4096)),
            Column("DownVotes", _I, Range(0, 5_000, 2048)),
        ),
        ("Id",),
        row_order="CreationDate",
    )
    posts = Table(
        "posts",
        (
            Column("Id", _I),
            Column("PostTypeId", _I, Range(1, 8)),
            Column("CreationDate", ColumnType.TIMESTAMP, _TIME),
            Column("Score", _I, Range(-100, 500)),
            Column("ViewCount", _I, Range(0, 200_000, 4096), nullable=True),
            Column("OwnerUserId", _I),
            Column("AnswerCount", _I, Range(0, 200), nullable=True),
            Column("CommentCount", _I, Range(0, 100)),
            Column("FavoriteCount", _I, Range(0, 500), nullable=True),
            Column("LastEditorUserId", _I, Range(1, 100_000, 16), nullable=True),
        ),
        ("Id",),
        (_owner("posts", "OwnerUserId", "users", 2_000),),
        row_order="CreationDate",
    )
    votes = Table(
        "votes",
        (
            Column("Id", _I),
            Column("PostId", _I),
            Column("VoteTypeId", _I, Range(1, 16)),
            Column("CreationDate", ColumnType.TIMESTAMP, _DAYS),
            Column("UserId", _I, Range(1, 100_000, 16), nullable=True),
            Column("BountyAmount", _I, Range(0, 500), nullable=True),
        ),
        ("Id",),
        (_owner("votes", "PostId", "posts", 500),),
        row_order="CreationDate",
    )
    badges = Table(
        "badges",
        (
            Column("Id", _I),
            Column("UserId", _I),
            Column("Date", ColumnType.TIMESTAMP, _TIME),
            Column("Name", ColumnType.CATEGORY, Learn()),
        ),
        ("Id",),
        (_owner("badges", "UserId", "users", 500),),
        row_order="Date",
    )
    links = Table(
        "postLinks",
        (
            Column("Id", _I),
            Column("CreationDate", ColumnType.TIMESTAMP, _TIME),
            Column("PostId", _I),
            Column("RelatedPostId", _I, Range(1, 200_000, 16)),
            Column("LinkTypeId", _I, Range(1, 3)),
        ),
        ("Id",),
        (_owner("postLinks", "PostId", "posts", 100),),
        row_order="CreationDate",
    )
    tags = Table(
        "tags",
        (Column("Id", _I), Column("Count", _I, Range(0, 20_000))),
        ("Id",),
        public=True,
    )
    schema = Schema("stats", (users, posts, votes, badges, links, tags), "users")
    return Spec(schema, str(source), folder / "stats.yaml", EPSILONS, DELTA, 20.0, 1e-7, state=folder / "state")


def every_key(source: Path, folder: Path) -> Spec:
    """`spec` with the site's other keys between private tables declared too, as any user would.

    Two of them are optional and one is required; all refer to another unit's rows, which they outlive. The bounds are
    round numbers above what a busy moderator might do.
    """
    plain = spec(source, folder)
    more = {
        "posts": ForeignKey("posts", ("LastEditorUserId",), "users", ("Id",), 4_000, optional=True),
        "votes": ForeignKey("votes", ("UserId",), "users", ("Id",), 1_000, optional=True),
        "postLinks": ForeignKey(
            "postLinks", ("RelatedPostId",), "posts", ("Id",), 300, on_unit_removed=OnUnitRemoved.SET_NULL
        ),
    }

    def declared(table: Table) -> Table:
        key = more.get(table.name)
        if key is None:
            return table
        columns = (replace(c, domain=None) if c.name in key.columns else c for c in table.columns)
        return replace(table, columns=tuple(columns), foreign_keys=(*table.foreign_keys, key))

    schema = replace(plain.schema, name="stats_keys", tables=tuple(map(declared, plain.schema.tables)))
    return replace(plain, schema=schema, orphans={key.name: "drop" for key in more.values()})


def multi_join(given: Spec, rows: Tables) -> Workload:
    """Joins of two to five tables along the declared keys, with at most two predicates on each, like STATS-CEB.

    Han et al., "Cardinality Estimation in DBMS: A Comprehensive Benchmark Evaluation", VLDB 2021.
    """
    return generate_workload(
        given.schema, rows, Recipe(queries=167, min_joins=1, max_joins=4, max_predicates=2, seed=1)
    )


def _owner(child: str, column: str, parent: str, most: int) -> ForeignKey:
    return ForeignKey(child, (column,), parent, ("Id",), most, owner=True)


def prepare(data: Path, folder: Path) -> Tables:
    """Write the source without ownerless rows to ``folder``; returns all rows, as the published queries count them."""
    complete = {name: read_table(data, name) for name in TABLES}
    posts = complete["posts"].filter(pc.is_valid(complete["posts"]["OwnerUserId"]))
    owned = {name: complete[name].filter(pc.is_in(complete[name]["PostId"], posts["Id"])) for name in ON_POSTS}
    for name, rows in {**complete, "posts": posts, **owned}.items():
        pq.write_table(rows, folder / f"{name}.parquet")
    return complete


def run(runs: Runs = RUNS, data: Path | None = None) -> str:
    """Measure and return Markdown text.

    Args:
        runs: What is run; a δ of 0 is left out, because the names of badges are learned.
        data: The data folder; see `data.data_folder`.

    Raises:
        PrivbenchError: Data is missing, or a cardinality of the published queries does not reproduce on it.
    """
    folder = data_folder(data) / "stats"
    with TemporaryDirectory() as place:
        source = Path(place) / "source"
        source.mkdir()
        published = published_queries(folder / "single_table_queries.sql", prepare(folder, source))

        def workloads(given: Spec, rows: Tables) -> dict[str, Workload]:
            joins = generate_workload(given.schema, rows, Recipe(queries=200, max_joins=3, seed=0))
            return {
                "published, one table": published,
                "random, up to 3 joins": joins,
                MULTI_JOIN: multi_join(given, rows),
            }

        case = Case.of(spec(source, Path(place)), workloads)
        figures = measure(case, replace(runs, deltas=[delta for delta in runs.deltas or () if delta > 0]))
    checked = (
        f"All {len(published.statements)} stated cardinalities of queries whose tables are there reproduce on all rows."
    )
    return f"{machine(runs.seeds)} {checked}\n\n{figures}"


def published_queries(file: Path, complete: Tables) -> Workload:
    """The published queries whose tables are there, checked on the complete data."""
    catalogue = {name: rows.column_names for name, rows in complete.items()}
    everything = read_workload(file)
    kept = []
    for statement in everything.statements:
        try:
            resolve(statement.sql, everything.dialect, catalogue)
        except UnansweredError:
            continue  # of a table that the data folder does not have
        kept.append(statement)
    published = Workload(tuple(kept))
    checked = run_workload(published, complete, complete)
    if checked.misstated or checked.failed:
        wrong = (*checked.misstated, *(failed["query"] for failed in checked.failed))
        raise PrivbenchError(
            f"{file.name}: stated cardinalities do not reproduce: queries {wrong}; is the data complete?"
        )
    return published
