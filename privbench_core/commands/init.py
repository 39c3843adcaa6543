"""``privbench init``: draft a spec from a source's catalogue; with ``--interactive``, ask what only its owner knows.

The interview has at most five questions, then shows the plan, and runs it if the owner wants that. Keys off the
ownership path add a line each to the second question: their bounds are promises that only an owner can make.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from privbench_core.commands import say
from privbench_core.commands.plan import show_plans
from privbench_core.commands.run import run_and_report
from privbench_core.draft.columns import UNTYPED
from privbench_core.draft.draft import NOT_CARRIED_OVER, ROWS_PER_PERSON, SCHEMAS, Decisions, Survey, reflect, survey
from privbench_core.draft.units import KeyPlace, Role
from privbench_core.errors import SpecError
from privbench_core.schema.types.numeric import as_number
from privbench_core.spec.fields import UNDECIDED
from privbench_core.spec.location import PASSWORD, is_spark_url


def write_spec(source: str, out: Path, sample_dir: Path | None = None, decisions: Decisions | None = None) -> None:
    """Reflect ``source`` and write the spec; an existing file is never overwritten.

    Raises:
        SpecError: ``out`` exists, or a decision names no table.
        SourceError: The source cannot be read.
    """
    _refuse_existing(out)
    text = reflect(source, sample_dir=sample_dir, decisions=decisions)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("x", encoding="utf-8") as file:
        try:
            file.write(text)
            file.flush()
        except BaseException:  # a full disk, Ctrl-C: half a spec is none
            out.unlink(missing_ok=True)
            raise
    read = "the catalogue and the public example data" if sample_dir else "the catalogue"
    say(f"Wrote {out}. Read only {read}.")
    for line in _summary(source, text):
        say(line)
    say(f"  privbench plan {out}")


def _refuse_existing(out: Path) -> None:
    if out.exists():
        raise SpecError(f"{out}: exists; give another name, or delete it first")


def _summary(source: str, text: str) -> Iterator[str]:
    """Say what a draft leaves to the owner."""
    if PASSWORD in text and PASSWORD not in source:
        secret = "token" if is_spark_url(source) else "password"
        yield f"The {secret} is not in the spec: set {PASSWORD} in the environment before the next command."
    yield from (line.strip(" #") for line in text.splitlines() if line.startswith("  # ") and ROWS_PER_PERSON in line)
    spread = next((line.partition(SCHEMAS)[0] for line in text.splitlines() if line.endswith(SCHEMAS)), None)
    if spread and "," in spread:
        yield f"It covers the tables of {spread}. To read fewer schemas: init --schemas SCHEMA,.."
    yield from (line.replace("# ", "", 1) for line in text.splitlines() if line.startswith(NOT_CARRIED_OVER))
    if views := sum(": {sql: " in line for line in text.partition("\n# views:\n")[2].splitlines()):
        yield f"  views: {views:,}, as comments at the end of the spec; keep those whose definitions anyone may see"
    counts = {
        "parts of the source are left out, each with its reason": "# left out: ",
        "checks are kept in the DDL but not enforced while sampling": "not enforced while sampling",
    }
    for what, mark in counts.items():
        found = sum(mark in line for line in text.splitlines() if not line.startswith("#"))
        if found:
            yield f"  {found:,} {what}"
    if untyped := sum(UNTYPED in line for line in text.splitlines()):
        todo = "correct their types in the spec, or write the files as Parquet, which has types"
        yield f"  {untyped:,} columns of CSV files are taken for text, because no name says more; {todo}"
    listed = [line.removeprefix("#").rstrip() for line in text.splitlines() if line.startswith("#   line ")]
    if listed:
        yield f"To fill in, {len(listed)}, marked CHOOSE in the spec; every other line has a default that works:"
        yield from listed
        yield "Then see what a run would do and cost:"
    else:
        yield "Nothing is left to fill in. Check the unit and the public tables, then see what a run would do and cost:"


def interview(source: str, out: Path | None, sample_dir: Path | None, decisions: Decisions) -> None:
    """Ask what is not decided yet, write the spec, show the plan, and offer to run it.

    Raises:
        SpecError: The file exists.
        SourceError: The source cannot be read.
    """
    whole = survey(source, decisions.schemas)
    found = whole.without(decisions.left_out)
    path = out or Path(f"{found.catalogue.name}.yaml")
    _refuse_existing(path)
    number = len(found.catalogue.tables)
    counted = "1 table" if number == 1 else f"{number} tables"
    say(f"{found.catalogue.name}: {counted}. Press Enter for the answer in brackets.")
    unit = decisions.unit or _unit(found)
    public, left_out = _outside(found, unit, decisions)
    found = whole.without(left_out)
    bounds, staying = dict[KeyPlace, int](), set[KeyPlace]()
    for place, role in found.promises(unit).items():
        if role.may_stay and _stays(place, role):
            staying.add(place)
        bounds[place] = _bound(place, role)
    preset = ", ".join(f"{epsilon:g}" for epsilon in decisions.epsilons)
    epsilons = _numbers("3. How much may one release reveal? ε; smaller is more private", preset)
    preset = f"{max(decisions.lifetime, sum(epsilons)):g}"
    lifetime = _number("4. How much may all releases together ever reveal? ε", preset, least=min(epsilons))
    bundle = Path(typer.prompt("5. Where to put the benchmark? A folder", default=f"{found.catalogue.name}-benchmark"))
    decided = replace(
        decisions,
        unit=unit,
        public=public,
        left_out=left_out,
        epsilons=epsilons,
        lifetime=lifetime,
        bounds=bounds,
        staying=staying,
    )
    write_spec(source, path, sample_dir, decided)
    lines = path.read_text(encoding="utf-8").splitlines()
    if any(UNDECIDED in line.partition(" # ")[0] for line in lines if not line.startswith("#")):
        return  # `write_spec` has listed what is left
    show_plans(path, epsilons[0])
    run = f"privbench run {path} --epsilon {epsilons[0]:g} --out {bundle}"
    if typer.confirm(f"Run this plan now at ε={epsilons[0]:g}? This reads rows and spends budget", default=False):
        run_and_report(path, epsilons[0], bundle)
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
        say(f"There is no table {answer}; there are {', '.join(names)}")


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
    question = f"   Leave out {', '.join(rest)} and the columns that refer to them? If not, they stay undecided"
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
        say(f"Not among these tables: {', '.join(unknown)}")


def _stays(place: KeyPlace, role: Role) -> bool:
    """Ask whether rows stay when what they refer to goes with its unit, which is part of what is protected."""
    table, columns, parent = place
    question = f"   When a row of {parent} is removed with its unit, do the rows of {table} that refer to it by"
    cost = f"If they are removed too, noise grows with their number: {role.noise_in_words}"
    return typer.confirm(f"{question} {', '.join(columns)} stay, without this reference? {cost}", default=False)


def _bound(place: KeyPlace, role: Role) -> int:
    """Ask for the bound of a key that nothing enforces."""
    table, columns, parent = place
    rows = f"a row of {parent}" if parent != table else "one of them"
    rows = f"rows of {parent} of one unit" if role.per_unit else rows
    question = (
        f"   At most how many rows of {table} refer to {rows} by {', '.join(columns)}? Nothing enforces this promise"
    )
    return int(_number(question, str(role.bound), whole=True))


def _numbers(question: str, preset: str) -> tuple[float, ...]:
    """Ask for numbers above 0, each once."""
    while True:
        found = [as_number(part.strip()) for part in str(typer.prompt(question, default=preset)).split(",")]
        numbers = tuple(number for number in found if number is not None and number > 0)
        if len(numbers) == len(found) == len(set(numbers)):
            return numbers
        say(f"Write numbers above 0, like {preset}")


def _number(question: str, preset: str, *, least: float = 0.0, whole: bool = False) -> float:
    """Ask for one number above 0, whole or large enough to pay for the smallest release."""
    while True:
        first, *more = _numbers(question, preset)
        if not more and first >= least and (first.is_integer() or not whole):
            return first
        say(f"Write numbers above 0, like {preset}")
