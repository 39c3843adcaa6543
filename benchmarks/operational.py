"""The first hour with operational databases in PostgreSQL: edits, refusals, losses of the schema, and plans of queries.

Each database is made in a temporary server, drafted, filled in as its owner would, run, published and loaded, command
by command. Where a command fails, the next of the edits listed here is made and the hour goes on; an edit that nothing
asks for is not made. PostgreSQL 18 comes from the project's own wheel, 16 from the wheel pgserver 0.1.4, unpacked into
``$PRIVBENCH_UNSEEN/postgres16``. Northwind and sakila lie beside it, in ``northwind_psql``
(github.com/pthom/northwind_psql, cd0ef28) and ``sakila`` (github.com/jOOQ/sakila, e089a5b).
"""

from __future__ import annotations

import json
import os
import pwd
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import psycopg
import pyarrow as pa

from benchmarks.operational_schema import Loss, lost_lines, planned
from benchmarks.report import Row, machine, markdown
from benchmarks.strangers_saas import company_tables
from benchmarks.unseen import FOLDER
from privbench_core.backends.postgres.temporary import PostgresServer, temporary_postgres
from privbench_core.errors import SourceError
from privbench_core.spec.fields import UNDECIDED

SQL = Path(__file__).with_name("first_hour_sql")
_SHOP = Path(__file__).resolve().parents[1] / "examples" / "shop" / "build.py"
_EPSILON = "3.2"
_OLD_WHEEL = "postgres16"
_STORED = {"string": "text", "int64": "bigint", "bool": "boolean", "double": "double precision", "list": "text[]"}


@dataclass(frozen=True)
class Operational:
    """A database.

    Attributes:
        unit: Whose rows are protected.
        make: Makes it, given a server and the URL of an empty database.
        edits: Pattern and replacement of each change to the spec that may be needed beside the choices, in this order.
    """

    unit: str
    make: Callable[[PostgresServer, str], None]
    edits: tuple[tuple[str, str], ...] = ()


@dataclass
class Hour:
    """What happened so far.

    Attributes:
        choices: Values that the draft asked for.
        edits: Edits beside them.
        seconds: By command.
        refused: The command, what was spent of the run's price before, and the message.
        went_through: Whether the bundle was published and loaded.
    """

    choices: int = 0
    edits: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    refused: list[tuple[str, float, str]] = field(default_factory=list)
    went_through: bool = False


def run(databases: Collection[str], runs: int, progress: Callable[[str], None]) -> str:
    """Return Markdown: a row per server and database, a line per refusal and per kind of object that the bundle loses.

    All columns but similar plans, which depend on noise, are those of the first run.

    Raises:
        SourceError: There is no PostgreSQL 16.
    """
    rows: list[Row] = []
    notes: list[str] = []
    for version, opened in _SERVERS.items():
        with opened() as server:
            for name in databases:
                progress(f"{name} in PostgreSQL {version}")
                database = DATABASES[name]
                try:
                    row, lines = _measured(server, name, database, runs)
                except SourceError as missing:
                    row, lines = {}, [str(missing)]
                rows.append({"PostgreSQL": version, "database": name, **row})
                notes += [f"- {name} in {version}: {line}" for line in dict.fromkeys(lines)]
    return "\n\n".join([markdown(rows), f"{machine(1)} Similar plans: of {runs} runs.", "\n".join(notes)])


def _measured(server: PostgresServer, name: str, database: Operational, runs: int) -> tuple[Row, list[str]]:
    source = _new(server, name)
    database.make(server, source)
    execute(source, "ANALYZE")
    copies, hours = [], []
    for number in range(runs):
        copy, plain = (_new(server, f"{name}_{what}_{number}") for what in ("copy", "plain"))
        with TemporaryDirectory() as folder:
            hours.append(go_through(database, Path(folder), source, copy, server.programs / "psql", plain))
        copies.append(copy)
    hour = hours[0]
    spent = max((share for _, share, _ in hour.refused), default=0.0)
    row: dict[str, str | float] = {
        "choices": hour.choices,
        "edits": hour.edits,
        "refusals": len(hour.refused),
        "spent before one": f"{spent:.0%}",
        "loads": "yes" if hour.went_through else "no",
        **{f"{what} s": value for what, value in hour.seconds.items()},
    }
    lines = [f"{what} refused after {share:.0%}: {said}" for what, share, said in hour.refused]
    if hour.went_through:
        losses = lost_lines(*(_dumped(server, url) for url in (source, copies[0])))
        row["lines lost"] = f"{sum(each.lost for each in losses)} of {sum(each.lines for each in losses)}"
        queries = [q for q in (SQL / f"{name}_queries.sql").read_text(encoding="utf-8").split(";\n") if q.strip()]
        loaded = [copy for copy, each in zip(copies, hours, strict=True) if each.went_through]
        for copy in loaded:
            execute(copy, "ANALYZE")
        theirs, found = planned(source, queries), [planned(copy, queries) for copy in loaded]
        same = [[plan.is_like(own) for plan, own in zip(plans, theirs, strict=True)] for plans in found]
        row["similar plans"] = f"{', '.join(str(sum(each)) for each in same)} of {len(queries)}"
        lines += [_in_words(each) for each in losses if each.lost]
        for number, query in enumerate(queries):
            others = [str(plans[number]) for plans, each in zip(found, same, strict=True) if not each[number]]
            if others:
                words = "; ".join(dict.fromkeys(others))
                lines.append(
                    f"another plan in {len(others)} of {len(found)}: {query.strip()}: {theirs[number]}, but {words}"
                )
    return row, lines


def _in_words(loss: Loss) -> str:
    return f"{loss.kind}: {loss.lost} of {loss.lines} lines lost ({', '.join(loss.names)})"


def go_through(database: Operational, place: Path, source: str, copy: str, psql: Path, plain: str) -> Hour:
    """Draft, choose, plan, run, publish and load; edit and go on where a command fails."""
    hour, accepted = Hour(), list[str]()
    spec = place / "spec.yaml"
    if said := _command(hour, "init", place, "init", source, "-o", spec.name, "--unit", database.unit):
        hour.refused.append(("init", 0.0, said))
        return hour
    text = spec.read_text(encoding="utf-8")
    hour.choices = 1 + sum(line.partition(" # ")[0].count(UNDECIDED) for line in text.splitlines() if line[0:1] != "#")
    spec.write_text(with_choices(text), encoding="utf-8")
    waiting = list(database.edits)
    while True:
        failed = _attempt(hour, place, copy, psql, plain, accepted)
        if failed is None:
            hour.went_through = True
            return hour
        hour.refused.append(failed)
        text = spec.read_text(encoding="utf-8")
        fitting = [edit for edit in waiting if re.search(edit[0], text)]
        if fitting:
            waiting.remove(fitting[0])
            spec.write_text(re.sub(*fitting[0], text), encoding="utf-8")
        elif failed[0] == "run" and not accepted:
            accepted.append("--accept-noise")
        else:
            return hour
        hour.edits += 1


def with_choices(draft: str) -> str:
    """Return a draft with its owner's choices.

    All tables that it lists are public, owners have up to 1,000 rows where it asks for a bound, and rows stay without a
    reference where it asks for that.
    """
    text = re.sub(rf"(?m)^    - {UNDECIDED} .*\n", "", draft)
    text = re.sub(r"(?m)^    # - ", "    - ", text)
    text = re.sub(rf"(max_children\w*): {UNDECIDED}", r"\1: 1000", text)
    return text.replace(f"on_unit_removed: {UNDECIDED}", "on_unit_removed: set null")


def _attempt(
    hour: Hour, place: Path, copy: str, psql: Path, plain: str, accepted: list[str]
) -> tuple[str, float, str] | None:
    """Go from the plan to the loaded bundle; return what failed, the share of the price spent, and what was said."""
    steps: dict[str, Callable[[], str]] = {
        "plan": lambda: _command(hour, "plan", place, "plan", "spec.yaml", "--epsilon", _EPSILON),
        "run": lambda: _command(
            hour, "run", place, "run", "spec.yaml", "--epsilon", _EPSILON, "--out", "bundle", *accepted
        ),
        "publish": lambda: _command(hour, "publish", place, "publish", "bundle", copy),
        "load": lambda: _timed(hour, "load", place / "bundle", [psql, "--no-psqlrc", "-q", plain, "-f", "load.sql"]),
    }
    for what, done in steps.items():
        if said := done():
            return what, _spent(place), " ".join(said.split())[:300]
    return None


def _spent(place: Path) -> float:
    """Return what the ledger has spent, as a share of the price of the run."""
    plan, ledger = (
        _json(place, *what) for what in (("plan", "spec.yaml", "--epsilon", _EPSILON), ("ledger", "spec.yaml"))
    )
    if plan is None or ledger is None:
        return 0.0
    price = float(plan["plans"][0]["total"]["amount"])
    return sum(float(entry["amount"]) for entry in ledger["entries"]) / price if price else 0.0


def _json(place: Path, *arguments: str) -> dict[str, Any] | None:
    command = [sys.executable, "-m", "privbench_core", *arguments, "--json"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    found: dict[str, Any] | None = None if done.returncode else json.loads(done.stdout)
    return found


def _command(hour: Hour, what: str, place: Path, *arguments: str) -> str:
    return _timed(hour, what, place, [sys.executable, "-m", "privbench_core", *arguments])


def _timed(hour: Hour, what: str, place: Path, command: list[str | Path]) -> str:
    """Run a command; return what it says if it fails, else nothing."""
    begun = perf_counter()
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    hour.seconds[what] = hour.seconds.get(what, 0.0) + perf_counter() - begun
    return (done.stderr.strip() or "failed without a word") if done.returncode else ""


def execute(url: str, script: str) -> None:
    """Run statements."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(script.encode())


def _new(server: PostgresServer, name: str) -> str:
    """Make a database and return its URL."""
    execute(server.url, f'CREATE DATABASE "{name}"')
    return server.url.replace("/postgres?", f"/{name}?")


def _dumped(server: PostgresServer, url: str) -> str:
    command = [server.programs / "pg_dump", "--schema-only", "--no-owner", "--no-privileges", url]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _from_files(*names: str) -> Callable[[PostgresServer, str], None]:
    """Return what makes a database from files of SQL below $PRIVBENCH_UNSEEN; SourceError if they are not there."""

    def make(server: PostgresServer, url: str) -> None:
        files = [Path(os.environ.get(FOLDER, ".")) / name for name in names]
        if missing := [file for file in files if not file.is_file()]:
            raise SourceError(
                f"{missing[0]} is missing; the docstring of benchmarks/operational.py says where it is from"
            )
        for file in files:  # statements for versions long gone fail, and are passed over
            command = [server.programs / "psql", "--no-psqlrc", "-q", url, "-f", file]
            subprocess.run(command, capture_output=True, check=True)

    return make


def _make_company(server: PostgresServer, url: str) -> None:
    del server
    tables = company_tables()
    with psycopg.connect(url) as connection:
        for name, rows in tables.items():
            columns = ", ".join(f"{field.name} {_stored(field.type)}" for field in rows.schema)
            connection.execute(f"CREATE TABLE made_{name} ({columns})".encode())
            with connection.cursor().copy(f"COPY made_{name} FROM STDIN".encode()) as copy:
                for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                    copy.write_row(row)
        connection.execute(b"SET TIME ZONE 'UTC'")
        connection.execute((SQL / "saas_schema.sql").read_bytes())
        connection.execute(f"DROP TABLE {', '.join(f'made_{name}' for name in tables)}".encode())


def _stored(kind: pa.DataType) -> str:
    return _STORED["list"] if pa.types.is_list(kind) else _STORED.get(str(kind), "timestamp")


def _make_shop(server: PostgresServer, url: str) -> None:
    del server
    runpy.run_path(str(_SHOP))["build_postgres"](url)


class _OlderServer(PostgresServer):
    """A server whose initdb has no built-in locales."""

    def create(self, settings: Mapping[str, str]) -> None:
        """Create its data."""
        given = {"listen_addresses": "", "unix_socket_directories": str(self.folder)} | dict(settings)
        options = [f"--set={name}={value}" for name, value in given.items()]
        self._run(
            "initdb", "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", *options
        )


@contextmanager
def _older_postgres() -> Iterator[PostgresServer]:
    """Start PostgreSQL 16 from its unpacked wheel, as `temporary_postgres` starts the present one."""
    wheel = Path(os.environ.get(FOLDER, ".")) / _OLD_WHEEL
    if not wheel.is_dir():
        raise SourceError(f"{wheel} is missing: pip install --no-deps --target {wheel} pgserver==0.1.4")
    with TemporaryDirectory(prefix="privbench-pg-") as temporary:
        folder, user = Path(temporary), None
        for part in ("pgserver", "pgserver.libs"):
            shutil.copytree(wheel / part, folder / part)
        if os.geteuid() == 0:
            user = pwd.getpwnam("nobody")
            os.chown(folder, user.pw_uid, user.pw_gid)
        server = _OlderServer(folder, folder / "pgserver" / "pginstall" / "bin", user)
        with server.removed_with_us():
            server.create({})
            server.start()
            try:
                yield server
            finally:
                server.stop()


_SERVERS: dict[str, Callable[[], AbstractContextManager[PostgresServer]]] = {
    "18": temporary_postgres,
    "16": _older_postgres,
}
DATABASES = {
    "northwind": Operational("customers", _from_files("northwind_psql/northwind.sql")),
    "sakila": Operational(
        "customer",
        _from_files("sakila/postgres-sakila-schema.sql", "sakila/postgres-sakila-insert-data-using-copy.sql"),
        ((r"(?m)^ *- \{name: film_fulltext_idx.*\n", ""),),  # an index that texts cannot have
    ),
    "saas": Operational("accounts", _make_company),
    "shop": Operational("customer", _make_shop),
}
