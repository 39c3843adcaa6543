"""``privbench init --interactive``: at most five questions, then the plan, and a run if the owner wants one.

Keys off the ownership path add a line each to the second question: their bounds are promises that only an owner can
make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from privbench_core.commands.init import refuse_existing, write_spec
from privbench_core.commands.plan import Asked, show_plans
from privbench_core.commands.run import Options, run_and_tell
from privbench_core.commands.terminal import say
from privbench_core.draft.draft import Decisions, Survey, survey
from privbench_core.draft.units import KeyPlace, Role
from privbench_core.schema.types.numeric import as_number
from privbench_core.spec.fields import UNDECIDED


def interview(source: str, out: Path | None, sample_dir: Path | None, decisions: Decisions) -> None:
    """Ask what is not decided yet, write the spec, show the plan, and offer to run it.

    Args:
        source: A URL, a DuckDB file or a folder.
        out: The spec file; None names it after the database.
        sample_dir: Folder of public example data.
        decisions: What the command line says already, which is not asked.

    Raises:
        SpecError: The file exists.
        SourceError: The source cannot be read.
    """
    whole = survey(source)
    found = whole.without(decisions.left_out)
    path = out or Path(f"{found.catalogue.name}.yaml")
    refuse_existing(path)
    number = len(found.catalogue.tables)
    counted = "1 table" if number == 1 else f"{number} tables"
    say(f"{found.catalogue.name}: {counted}. Enter takes the answer in brackets.")
    unit = decisions.unit or _unit(found)
    public, left_out = _outside(found, unit, decisions)
    found = whole.without(left_out)
    bounds = {place: _bound(place, role) for place, role in found.promises(unit).items()}
    epsilons = _ask("3. How much may a release reveal? ε, less is more private", _listed(decisions.epsilons), _numbers)
    least = max(decisions.lifetime, sum(epsilons))
    (lifetime,) = _ask("4. How much may all releases together, ever? ε", f"{least:g}", _at_least(min(epsilons)))
    bundle = Path(typer.prompt("5. Where to put the benchmark? A folder", default=f"{found.catalogue.name}-benchmark"))
    decided = replace(
        decisions, unit=unit, public=public, left_out=left_out, epsilons=epsilons, lifetime=lifetime, bounds=bounds
    )
    write_spec(source, path, sample_dir, decided)
    lines = path.read_text(encoding="utf-8").splitlines()
    if any(UNDECIDED in line.partition(" # ")[0] for line in lines if not line.startswith("#")):
        return  # `write_spec` has listed what is left
    show_plans(path, Asked(epsilons[0]), as_json=False)
    run = f"privbench run {path} --epsilon {epsilons[0]:g} --out {bundle}"
    if typer.confirm(f"Run it now at ε={epsilons[0]:g}? This reads rows and spends budget", default=False):
        run_and_tell(path, Options(epsilons[0], bundle), as_json=False)
    else:
        say(f"Later: {run}")


def _unit(found: Survey) -> str:
    """Ask for the privacy unit; a table is preset only where its name or its key says that its rows are persons."""
    names = [table.name for table in found.catalogue.tables if not table.unreadable]
    likely = found.unit or found.only
    if likely and (warning := found.warning(likely)):
        say(f"   {warning}")
    question = "1. Whose rows are protected? A table"
    question += "" if found.unit else f" of these: {', '.join(names)}"
    while True:
        answer = str(typer.prompt(question, default=found.unit))
        if answer in names:
            return answer
        say(f"There is no table {answer}: {', '.join(names)}")


def _outside(found: Survey, unit: str, decisions: Decisions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ask which of the tables without a key to the unit are published, and whether the others are left out.

    Enter publishes nothing and leaves nothing out: the spec keeps the decision open, and no run accepts it.

    Returns:
        The public tables, and those that the benchmark does without.
    """
    waiting = [each for each in found.candidates(unit) if each.table not in decisions.public]
    if not waiting:
        return decisions.public, decisions.left_out
    say(f"2. No foreign key leads from these tables to {unit}, so their rows belong to no unit:")
    for each in waiting:
        say(f"   {each.table}: {each.sentence}")
    outside = [each.table for each in waiting]
    public = _names("   Which of them may anyone see, row by row? Names with commas, or Enter for none", outside)
    rest = [name for name in outside if name not in public]
    left_out = decisions.left_out
    question = f"   Leave {', '.join(rest)} out, with the columns that refer to them? If not, the spec keeps this open"
    if rest and typer.confirm(question, default=False):
        left_out = (*left_out, *rest)
    return (*decisions.public, *public), left_out


def _names(question: str, known: Sequence[str]) -> tuple[str, ...]:
    while True:
        answer = str(typer.prompt(question, default="", show_default=False))
        names = tuple(dict.fromkeys(name.strip() for name in answer.split(",") if name.strip()))
        unknown = [name for name in names if name not in known]
        if not unknown:
            return names
        say(f"Not among them: {', '.join(unknown)}")


def _bound(place: KeyPlace, role: Role) -> int:
    """Ask for the bound of a key that nothing enforces."""
    table, columns, parent = place
    rows = f"a row of {parent}" if parent != table else "one of them"
    rows = f"rows of {parent} of one unit" if role.per_unit else rows
    question = (
        f"   At most how many rows of {table} refer to {rows} by {', '.join(columns)}? Your promise, not enforced"
    )
    (bound,) = _ask(question, str(role.bound), _whole)
    return int(bound)


def _whole(answer: str) -> tuple[float, ...]:
    """Read one whole number above 0."""
    numbers = _numbers(answer)
    return numbers if len(numbers) == 1 and numbers[0].is_integer() else ()


def _ask(question: str, preset: str, read: Callable[[str], tuple[float, ...]]) -> tuple[float, ...]:
    while True:
        found = read(str(typer.prompt(question, default=preset)))
        if found:
            return found
        say(f"Write numbers above 0, like {preset}")


def _numbers(answer: str) -> tuple[float, ...]:
    found = [as_number(part.strip()) for part in answer.split(",")]
    numbers = tuple(number for number in found if number is not None and number > 0)
    return numbers if len(numbers) == len(found) == len(set(numbers)) else ()


def _at_least(least: float) -> Callable[[str], tuple[float, ...]]:
    """Return a reader of one number that can pay for the smallest release."""

    def read(answer: str) -> tuple[float, ...]:
        numbers = _numbers(answer)
        return numbers if len(numbers) == 1 and numbers[0] >= least else ()

    return read


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
