"""``privbench init``: draft a spec from a source's catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from privbench_core.commands.terminal import say
from privbench_core.draft.draft import ROWS_PER_PERSON, Decisions, reflect
from privbench_core.errors import SpecError
from privbench_core.spec.location import PASSWORD, is_spark_url


def write_spec(source: str, out: Path, sample_dir: Path | None = None, decisions: Decisions | None = None) -> None:
    """Reflect ``source`` and write the spec; an existing file is never overwritten.

    Args:
        source: A URL, a DuckDB file or a folder.
        out: The spec file.
        sample_dir: Folder of public example data to propose domains from.
        decisions: What is decided already.

    Raises:
        SpecError: ``out`` exists, or a decision names no table.
        SourceError: The source cannot be read.
    """
    refuse_existing(out)
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


def refuse_existing(out: Path) -> None:
    """Raise SpecError if the file is there."""
    if out.exists():
        raise SpecError(f"{out}: exists; give another name, or delete it first")


def _summary(source: str, text: str) -> Iterator[str]:
    """Say what a draft leaves to the owner."""
    if PASSWORD in text and PASSWORD not in source:
        secret = "token" if is_spark_url(source) else "password"
        yield f"The {secret} is not in it: set {PASSWORD} in the environment before the next command."
    yield from (line.strip(" #") for line in text.splitlines() if line.startswith("  # ") and ROWS_PER_PERSON in line)
    counts = {
        "parts of the source are left out, each with its reason": "# left out: ",
        "checks are kept in the DDL but not enforced while sampling": "not enforced while sampling",
    }
    for what, mark in counts.items():
        found = sum(mark in line for line in text.splitlines() if not line.startswith("#"))
        if found:
            yield f"  {found:,} {what}"
    listed = [line.removeprefix("#").rstrip() for line in text.splitlines() if line.startswith("#   line ")]
    if listed:
        yield f"To fill in, {len(listed)}, where it says CHOOSE; all other lines have a default that works:"
        yield from listed
        yield "Then see what a run does, and costs:"
    else:
        yield "Nothing is left to fill in. Check the unit and the public tables, then see what a run does, and costs:"
