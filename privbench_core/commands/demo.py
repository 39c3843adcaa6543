"""``privbench demo``: run the bundled example through the full pipeline, in its own folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import privbench_core
from privbench_core.commands.bundles import show_fidelity
from privbench_core.commands.run import report_outcome, run_with_progress
from privbench_core.commands.terminal import say
from privbench_core.errors import PublishError, SourceError
from privbench_core.evaluation.comparison import compare
from privbench_core.evaluation.inputs import read_bundle_and_source
from privbench_core.evaluation.marginals import BRIEF
from privbench_core.spec.load import load_spec

EPSILON = 0.8  # the smallest of the example's spec
_FILES = ("spec.yaml", "household.parquet", "person.parquet", "LICENSE.activitysim.txt", "README.md")


def run_demo(folder: Path) -> None:
    """Copy the example to ``folder``, run it at ε = 0.8, and report where the bundle is and what it cost.

    Existing files are kept, so that the example can be edited and run again; a second run costs nothing.

    Raises:
        PublishError: ``folder`` holds other files.
    """
    example = find_example()
    if folder.exists() and not (folder.is_dir() and ((folder / "spec.yaml").exists() or not any(folder.iterdir()))):
        raise PublishError(f"{folder}: holds other files than the demo; choose another folder with --dir")
    folder.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        if not (folder / name).exists():
            shutil.copyfile(example / name, folder / name)
    say(f"Running the example, households and persons of San Diego, at ε={EPSILON:g}.")
    path, bundle = folder / "spec.yaml", folder / "bundle"
    spec = load_spec(path)
    report_outcome(spec, run_with_progress(spec, EPSILON, bundle))
    say()
    show_fidelity(compare(read_bundle_and_source(spec, bundle).pair, BRIEF))
    say("Next:")
    say("  a report on how close it is (internal)")
    say(f"    privbench evaluate {path} {bundle} --out {folder / 'report'}")
    say("  a database ten times as large, from the same releases, at no cost")
    say(f"    privbench run {path} --epsilon {EPSILON:g} --scale 10 --out {folder / 'bundle-x10'}")


def find_example() -> Path:
    """Return the folder of the example: beside the package in a clone, inside of it if installed from a wheel.

    Raises:
        SourceError: Neither exists.
    """
    package = Path(privbench_core.__file__).parent
    for folder in (package.parent / "examples" / "households", package / "examples" / "households"):
        if (folder / "spec.yaml").exists():
            return folder
    raise SourceError("the example is not installed; run privbench demo from a clone of the project")
