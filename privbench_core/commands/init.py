"""``privbench init``: draft a spec from a source's catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from privbench_core.commands.terminal import say
from privbench_core.draft.draft import reflect
from privbench_core.errors import SpecError


def write_spec(source: str, out: Path, sample_dir: Path | None = None) -> None:
    """Reflect ``source`` and write the spec; an existing file is never overwritten.

    Args:
        source: A database URL, a DuckDB file or a folder.
        out: The spec file.
        sample_dir: Folder of public example data to propose domains from.

    Raises:
        SpecError: ``out`` exists.
        SourceError: The source cannot be read.
    """
    if out.exists():
        raise SpecError(f"{out}: exists; give another name, or delete it first")
    text = reflect(source, sample_dir=sample_dir)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("x", encoding="utf-8") as file:
        file.write(text)
    read = "the catalogue and the public example data" if sample_dir else "the catalogue"
    say(f"Wrote {out}. Read only {read}.")
    for line in _summary(text):
        say(line)
    say("Decide the lines marked '# decide', then check the prices:")
    say(f"  privbench plan {out}")


def _summary(text: str) -> Iterator[str]:
    """Count the decisions that a draft leaves to the owner."""
    counts = {
        "decisions are marked '# decide'": "decide: ",
        "parts of the source are left out, each with its reason": "# left out: ",
        "checks are kept in the DDL but not enforced while sampling": "not enforced while sampling",
    }
    for what, mark in counts.items():
        found = sum(mark in line for line in text.splitlines() if not line.startswith("#"))
        if found:
            yield f"  {found:,} {what}"
