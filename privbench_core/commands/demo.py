"""``privbench demo``: run a bundled example through the full pipeline, in its own folder."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

import privbench_core
from privbench_core.commands import say, show
from privbench_core.commands.bundles import show_fidelity
from privbench_core.commands.run import report_outcome, run_with_progress
from privbench_core.errors import PublishError, SourceError
from privbench_core.evaluation import read_bundle_and_source
from privbench_core.evaluation.comparison import compare
from privbench_core.evaluation.marginals import BRIEF
from privbench_core.spec.load import load_spec

DEFAULT = "households"


class Example(NamedTuple):
    """A bundled example.

    Attributes:
        about: What its rows are of.
        public: Why rows of its source may be shown.
        epsilon: One of its spec.
        shown: Columns to show, by table.
        made: The file that its build.py makes; None where the rows are bundled.
    """

    about: str
    public: str
    epsilon: float
    shown: Mapping[str, tuple[str, ...]]
    made: str | None = None


EXAMPLES = {
    "households": Example(
        "households and persons of San Diego",
        "they are from public census records",
        0.8,
        {
            "household": ("HHID", "PERSONS", "workers", "TAZ", "income", "HHT", "bldgsz"),
            "person": ("PERID", "household_id", "age", "PNUM", "sex", "pemploy", "pstudent", "educ"),
        },
    ),
    "shop": Example(
        "an online shop: customers, addresses, orders, payments, reviews",
        "a script made them up",
        3.2,
        {
            "customer": ("id", "full_name", "segment", "birth_date", "country", "settings"),
            "orders": ("id", "customer_id", "status", "channel", "placed_at", "shipped_at", "currency", "total"),
            "order_line": ("order_id", "line", "sku", "quantity", "unit_price", "amount"),
        },
        made="shop.duckdb",
    ),
}


def run_demo(name: str, folder: Path | None) -> None:
    """Copy an example to ``folder``, run it, and report rows, what it cost and where the bundle is.

    The folder is demo, or demo-NAME, if it is None. Existing files are kept, so that the example can be edited and run
    again; a second run costs nothing.

    Raises:
        PublishError: ``folder`` holds other files.
        SourceError: There is no such example.
    """
    if name not in EXAMPLES:
        raise SourceError(f"there is no example {name!r}; there are {' and '.join(EXAMPLES)}")
    example, bundled = EXAMPLES[name], find_example(name)
    folder = folder or Path("demo" if name == DEFAULT else f"demo-{name}")
    path, bundle = folder / "spec.yaml", folder / "bundle"
    if folder.exists() and not (folder.is_dir() and (_holds(path, example) or not any(folder.iterdir()))):
        raise PublishError(f"{folder}: holds other files than this example; choose another folder with --dir")
    folder.mkdir(parents=True, exist_ok=True)
    for file in bundled.iterdir():
        if file.is_file() and not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)
    if example.made and not (folder / example.made).exists():
        runpy.run_path(str(folder / "build.py"))["build"](folder / example.made)
    spec = load_spec(path)
    say(f"Running the example at ε={example.epsilon:g}: {example.about}.")
    report_outcome(spec, run_with_progress(spec, example.epsilon, bundle))
    say()
    pair = read_bundle_and_source(spec, bundle).pair
    say(f"Source and synthetic rows (the source rows may be shown: {example.public})", style="bold")
    for table, columns in example.shown.items():
        for title, rows in ((f"{table}, source", pair.source[table]), (f"{table}, synthetic", pair.synthetic[table])):
            show(title, columns, _from_the_middle(rows.select(columns)))
    show_fidelity(compare(pair, BRIEF))
    say("Next:")
    say("  write a report on how close the bundle is to the source (internal)")
    say(f"    privbench evaluate {path} {bundle} --out {folder / 'report'}")
    say("  see whether PostgreSQL, and those who tune it, choose as on the source (internal)")
    say(f"    privbench certify {path} {bundle} --out {folder / 'certificate'}")
    if spec.workload:
        say("  load it into your PostgreSQL, and test the plans of its queries there, as in CI")
        say(f"    privbench publish {bundle} postgresql://user@host/database")
        say(f"    privbench check {bundle} postgresql://user@host/database")
        say("  replay these queries in their mix with pgbench")
        say(f"    sh {bundle}/workload/{spec.workload.stem}.pgbench/run.sh -c 4 -T 60 postgresql://user@host/database")
    say("  add replicates, from which recipients get error bars of answers, at no cost")
    say(f"    privbench replicate {path} {bundle}")
    if spec.schema.is_dated:
        say("  write the rows of the week after as INSERT statements, for tests of incremental loads")
        say(f"    privbench publish {bundle} {folder / 'week.sql'} --append 7")
    say("  draw a database ten times as large from the same releases, at no cost")
    say(f"    privbench run {path} --epsilon {example.epsilon:g} --scale 10 --out {folder / 'bundle-x10'}")


def _holds(path: Path, example: Example) -> bool:
    return path.exists() and example.shown.keys() <= {table.name for table in load_spec(path).schema.tables}


def _from_the_middle(rows: pa.Table) -> list[list[str]]:
    shown = rows.slice(rows.num_rows // 2, 5).to_pylist()
    return [["" if value is None else str(value) for value in row.values()] for row in shown]


def find_example(name: str = DEFAULT) -> Path:
    """Return the folder of an example: beside the package in a clone, inside of it if installed from a wheel.

    Raises:
        SourceError: Neither exists.
    """
    package = Path(privbench_core.__file__).parent
    for folder in (package.parent / "examples" / name, package / "examples" / name):
        if (folder / "spec.yaml").exists():
            return folder
    raise SourceError("the example is not installed; run privbench demo from a clone of the project")
