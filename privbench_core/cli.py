"""The command line: what each command is called and takes. What it does is in `privbench_core.commands`.

Scripts depend on these names, options and exit codes (0 ok, 1 refused or failed, 2 usage,
130 stopped with Ctrl-C). Commands are imported when
they run, so that ``--help`` does not pay for Arrow, DuckDB and the rest.
"""

from __future__ import annotations

import sys
import warnings
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from privbench_core.commands import STOPPED, one_clear_line
from privbench_core.version import __version__

app = typer.Typer(
    name="privbench",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they print local variables, and those may be private rows
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _option(help_text: str, *names: str, metavar: str | None = None, least: int | None = None) -> Any:
    """An option of which the help shows no default, because what is left out is what the text says."""
    return typer.Option(*names, metavar=metavar, min=least, help=help_text, show_default=False)


SpecFile = Annotated[Path, typer.Argument(metavar="SPEC", help="The spec file (YAML).", show_default=False)]
BundleFolder = Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder of a bundle.", show_default=False)]
Synthesizer = Annotated[str | None, _option("Synthesizer to use instead of the spec's.", metavar="NAME")]
Delta = Annotated[float | None, _option("δ of the run, instead of the spec's.")]
Engine = Annotated[
    str | None, _option("Engine that counts private rows, instead of the spec's.", metavar="memory|duckdb|source|spark")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
AcceptNoise = Annotated[
    bool, typer.Option("--accept-noise", help="Go on paying even if released numbers show that the rest will be noise.")
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"privbench {__version__}")
        raise typer.Exit


@app.callback()
def privbench(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Turn a private relational database into a differentially private benchmark that can be given away."""


@app.command()
def init(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A URL, a DuckDB file or a folder of files.")],
    out: Annotated[Path | None, _option("The spec file to write.", "-o", "--out")] = None,
    sample_dir: Annotated[
        Path | None, _option("Folder of public example data, from which domains are proposed.", "--sample-dir")
    ] = None,
    unit: Annotated[
        str | None, _option("The table whose rows are protected, with all that depend on them.", metavar="TABLE")
    ] = None,
    public: Annotated[str | None, _option("Tables whose rows anyone may see.", metavar="TABLE,..")] = None,
    leave_out: Annotated[
        str | None, _option("Tables to leave out, with the foreign keys that refer to them.", metavar="TABLE,..")
    ] = None,
    schemas: Annotated[
        str | None, _option("PostgreSQL schemas to read, the main one first. Default: all.", metavar="SCHEMA,..")
    ] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Ask what only you can decide, show the plan, and offer to run it.")
    ] = False,
) -> None:
    """Draft a spec from a source, to edit. Reads the source's catalogue and public examples, never its rows."""
    if out is None and not interactive:
        raise typer.BadParameter("name the spec file to write", param_hint="--out")
    with one_clear_line("no spec was written"):
        from privbench_core.commands.init import interview, write_spec
        from privbench_core.draft.draft import Decisions

        listed, gone, read = (
            tuple(filter(None, map(str.strip, (given or "").split(",")))) for given in (public, leave_out, schemas)
        )
        decisions = Decisions(unit, listed, gone, schemas=read)
        if interactive:
            interview(source, out, sample_dir, decisions)
        elif out is not None:
            write_spec(source, out, sample_dir, decisions)


@app.command()
def plan(
    spec: SpecFile,
    epsilon: Annotated[float | None, _option("ε of the run. Default: every ε of the spec.")] = None,
    synthesizer: Synthesizer = None,
    delta: Delta = None,
    engine: Engine = None,
    rows: Annotated[
        list[str] | None, _option("TABLE=NUMBER: rough public number of rows, to forecast the table. Repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the steps, their prices, the noise in rows and what to expect of each table. Reads no row."""
    with one_clear_line():
        from privbench_core.commands.plan import show_plans

        show_plans(spec, epsilon, delta, synthesizer, engine, rows=rows or (), as_json=json)


@app.command()
def run(
    spec: SpecFile,
    epsilon: Annotated[float, _option("ε that this run may spend.")],
    out: Annotated[Path, _option("Folder for the bundle. A bundle that is there is replaced.")],
    synthesizer: Synthesizer = None,
    delta: Delta = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampling. The privacy noise has no seed.")] = 0,
    scale: Annotated[float, typer.Option(help="Size relative to the source; costs no budget.")] = 1.0,
    workers: Annotated[
        int | None, _option("Processes for large tables, all with the same result. Default: all cores.", least=1)
    ] = None,
    undeclared_epsilon: Annotated[
        bool, typer.Option("--undeclared-epsilon", help="Run at an ε that the spec does not list.")
    ] = False,
    accept_noise: AcceptNoise = False,
    engine: Engine = None,
    csv: Annotated[bool, typer.Option("--csv/--no-csv", help="Also write the rows as CSV, which psql loads.")] = True,
    json: Json = False,
) -> None:
    """Run the whole plan and write a bundle. Results that were released before are not paid for again."""
    with one_clear_line("releases so far are kept"):
        from privbench_core.commands.run import run_and_report

        chosen = {"synthesizer": synthesizer, "delta": delta, "undeclared_epsilon": undeclared_epsilon}
        drawn = {"seed": seed, "scale": scale, "workers": workers, "csv": csv}
        run_and_report(spec, epsilon, out, engine=engine, accept_noise=accept_noise, as_json=json, **chosen, **drawn)


@app.command()
def evaluate(
    spec: SpecFile,
    bundle: BundleFolder,
    out: Annotated[Path, _option("Folder for metrics.json and report.html.")],
    workload: Annotated[
        Path | None, _option("Queries to compare. Default: generated ones.", metavar="FILE.sql")
    ] = None,
    run_time: Annotated[
        bool, typer.Option("--run-time", help="Also time the queries in embedded PostgreSQL (extra: runtime).")
    ] = False,
    run_time_url: Annotated[str | None, _option("Also time the queries in this PostgreSQL.", metavar="URL")] = None,
    json: Json = False,
) -> None:
    """Compare a bundle with its source. The report is for the owner only: it is not differentially private."""
    with one_clear_line("no report was written"):
        from privbench_core.commands.bundles import report

        report(spec, bundle, out, workload, run_time=run_time_url or run_time, as_json=json)


@app.command()
def replicate(
    spec: SpecFile,
    bundle: BundleFolder,
    number: Annotated[int, typer.Option(help="Number of replicates; each takes as long as a run.")] = 10,
) -> None:
    """Add replicates to a bundle, for error bars. Reads the spec and the bundle alone, and costs no budget."""
    with one_clear_line("the bundle is unchanged"):
        from privbench_core.commands.bundles import add_replicates

        add_replicates(spec, bundle, number)


@app.command()
def certify(
    spec: SpecFile,
    bundle: BundleFolder,
    out: Annotated[Path, _option("Folder for certificate.json and certificate.html.")],
    workload: Annotated[
        Path | None, _option("Queries. Default: the bundle's own, else generated ones.", metavar="FILE.sql")
    ] = None,
    url: Annotated[
        list[str] | None,
        _option("PostgreSQL to load both into. Default: an embedded one. A second one is a choice.", metavar="URL"),
    ] = None,
    thresholds: Annotated[Path | None, _option("Limits instead of the default ones.", metavar="FILE.yaml")] = None,
    choices: Annotated[int, typer.Option(min=0, help="Most choices between two ways to run a query.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample of choices.")] = 0,
    json: Json = False,
) -> None:
    """Compare PostgreSQL's plans and decisions on source and bundle, within limits. For the owner only."""
    with one_clear_line("no certificate was written"):
        from privbench_core.commands.bundles import show_certificate

        options = {"workload": workload, "urls": url or (), "thresholds": thresholds, "choices": choices, "seed": seed}
        show_certificate(spec, bundle, out, as_json=json, **options)


@app.command()
def explain(
    bundle: BundleFolder,
    workload: Annotated[Path | None, _option("Queries. Default: the bundle's own.", metavar="FILE.sql")] = None,
    url: Annotated[
        str | None, _option("PostgreSQL to load the bundle into for a while. Default: an embedded one.", metavar="URL")
    ] = None,
    against: Annotated[Path | None, _option("Another bundle to compare plans with.", metavar="BUNDLE")] = None,
    out: Annotated[Path | None, _option("Folder for plans.json and plans.html.")] = None,
    error_bars: Annotated[
        bool, typer.Option("--error-bars", help="Show how far answers may be from the source's, and no plans.")
    ] = False,
    json: Json = False,
) -> None:
    """Show PostgreSQL's plans of queries on a bundle, with estimates beside actual rows. Needs no source."""
    if error_bars and (url or against or out):
        raise typer.BadParameter(
            "is about answers, not plans: leave --url, --against and --out", param_hint="--error-bars"
        )
    with one_clear_line():
        if error_bars:
            from privbench_core.commands.bundles import show_error_bars

            show_error_bars(bundle, workload, as_json=json)
            return
        from privbench_core.commands.bundles import show_explanation

        show_explanation(bundle, workload, url=url, against=against, out=out, as_json=json)


@app.command()
def publish(
    bundle: BundleFolder,
    target: Annotated[str, typer.Argument(metavar="TARGET_URL", help="A PostgreSQL URL or a DuckDB file.")],
    replace: Annotated[bool, typer.Option("--replace", help="First drop tables of the same names.")] = False,
    statistics_only: Annotated[
        bool, typer.Option("--statistics-only", help="No rows: only what the planner of PostgreSQL 18 knows of them.")
    ] = False,
    append: Annotated[
        int | None,
        _option("Add the rows of the next days to a database that holds the bundle, or to a .sql file.", least=1),
    ] = None,
    after: Annotated[
        int | None, _option("How often --append has added rows before. Default: found out.", least=0)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of --append; the same each time.")] = 0,
    json: Json = False,
) -> None:
    """Load a bundle into a database: create tables, load rows, add keys and indexes, analyze. All or nothing."""
    if append is not None and (replace or statistics_only):
        given = "--replace" if replace else "--statistics-only"
        raise typer.BadParameter(f"adds to the rows that are there; leave out {given}", param_hint="--append")
    if append is None and after is not None:
        raise typer.BadParameter("says where --append goes on; give both", param_hint="--after")
    with one_clear_line("the target is unchanged"):
        from privbench_core.commands.bundles import load, load_next

        if append is None:
            load(bundle, target, replace=replace, statistics_only=statistics_only, as_json=json)
        else:
            load_next(bundle, target, append, after, seed, as_json=json)


@app.command()
def check(
    bundle: BundleFolder,
    url: Annotated[str, typer.Argument(metavar="URL", help="The PostgreSQL database that holds it.")],
    workload: Annotated[Path | None, _option("Queries. Default: the bundle's own.", metavar="FILE.sql")] = None,
    thresholds: Annotated[Path | None, _option("Limits instead of the default ones.", metavar="FILE.yaml")] = None,
    baseline: Annotated[
        Path | None, _option("An earlier check to compare with. Default: the bundle in embedded PostgreSQL.")
    ] = None,
    write_baseline: Annotated[Path | None, _option("File to keep this check in, for --baseline.")] = None,
    junit: Annotated[Path | None, _option("File for JUnit XML, a test case per query.", metavar="FILE.xml")] = None,
    json: Json = False,
) -> None:
    """Test a database that holds the bundle: rows, and plans, costs and run times of queries, within limits."""
    with one_clear_line("nothing was written to the database"):
        from privbench_core.commands.bundles import report_check

        files = {"baseline": baseline, "write_baseline": write_baseline, "junit": junit}
        report_check(bundle, url, **files, as_json=json, workload=workload, thresholds=thresholds)


@app.command()
def ledger(
    spec: SpecFile,
    new_state: Annotated[
        bool,
        typer.Option(
            "--new-state",
            help="Go on without a lost state folder (its results are paid again) or ledger (spending is forgotten).",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Show how much of the lifetime budget is spent, reserved and left, by run and step."""
    with one_clear_line():
        from privbench_core.commands.ledger import show_ledger, take_new_state

        if new_state:
            take_new_state(spec)
        show_ledger(spec, as_json=json)


@app.command()
def status(spec: SpecFile, json: Json = False) -> None:
    """Show which bundles are stale, what a refresh costs, and how many more refreshes the budget allows."""
    with one_clear_line():
        from privbench_core.commands.status import show_status

        show_status(spec, as_json=json)


@app.command()
def refresh(
    spec: SpecFile,
    epsilon: Annotated[
        float | None, _option("ε to refresh, or to release for the first time. Default: every ε released before.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show which steps would run.")] = False,
    accept_noise: AcceptNoise = False,
) -> None:
    """Bring stale bundles up to date. They are in the state folder, where Dagster keeps them too."""
    with one_clear_line("releases so far are kept"):
        from privbench_core.commands.status import refresh_stale

        refresh_stale(spec, epsilon, dry_run=dry_run, accept_noise=accept_noise)


@app.command()
def demo(
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Folder for the example and its bundle. Default: demo, or demo-shop.")
    ] = None,
    example: Annotated[str, typer.Option(help="households (two tables) or shop (eight).")] = "households",
) -> None:
    """Run the full pipeline on a bundled example."""
    with one_clear_line("releases so far are kept"):
        from privbench_core.commands.demo import run_demo

        run_demo(example, folder)


def main() -> None:
    """The entry point of the ``privbench`` script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ε and ρ shows a question mark, not a failure
    warnings.simplefilter("ignore", RuntimeWarning)  # of arithmetic: whether there is one depends on private rows
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(STOPPED)
