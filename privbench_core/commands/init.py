"""``privbench init``: a source's catalogue as a spec to edit."""

from __future__ import annotations

from pathlib import Path

from privbench_core.commands.terminal import say
from privbench_core.errors import SpecError
from privbench_core.schema.reflect import reflect


def write_spec(source: str, out: Path) -> None:
    """Reflect ``source`` and write the spec; an existing file is never overwritten.

    Raises:
        SpecError: ``out`` exists.
        SourceError: The source cannot be read.
    """
    if out.exists():
        raise SpecError(f"{out}: exists; give another name, or delete it first")
    text = reflect(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("x", encoding="utf-8") as file:
        file.write(text)
    say(f"Wrote {out}. Nothing was read but the catalogue.")
    say("Decide what is marked '# decide', then look at the prices:")
    say(f"  privbench plan {out}")
