"""A first spec for a source, drafted from its catalogue.

The catalogue says names, types and keys; it does not say what is private, how many children a parent may have or which
values may be told. Those lines carry a ``# decide:``, and where any value would be a guess they hold ``CHOOSE``, which
`load_spec` refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from privbench_core.backends.catalogue import Catalogue, FoundTable
from privbench_core.backends.registry import read_catalogue
from privbench_core.draft.columns import one_line
from privbench_core.draft.identifying import describes_persons
from privbench_core.draft.samples import Samples, read_samples
from privbench_core.draft.tables import dependants, draft_table
from privbench_core.spec.fields import UNDECIDED
from privbench_core.spec.location import expand, is_url, parse_url
from privbench_core.spec.yaml_io import flow_yaml

_PASSWORD = "PRIVBENCH_PASSWORD"  # noqa: S105 - the name of an environment variable
_INTRODUCTION = """\
# Drafted from the catalogue of the source; no row {looked}.
# Everything in this file is public: whoever receives the benchmark may know all of it. So take domains and bounds from
# a codebook or from common sense, never from looking at the rows. Lines with "decide:" are yours to decide.
"""


def reflect(source: str, name: str | None = None, sample_dir: Path | None = None) -> str:
    """Draft a spec file.

    Args:
        source: A folder of Parquet or CSV files, a DuckDB file, or a database URL (``${VARIABLE}`` is expanded to
            connect and kept as written).
        name: Name of the database; by default that of the folder, file, schema or database.
        sample_dir: Folder of *public* example data, one Parquet or CSV file per table, to propose domains from. Its
            rows are read, and what they show ends in the draft.

    Returns:
        YAML text with comments, to be edited: `load_spec` lists what is still to be decided.

    Raises:
        SourceError: The source or the samples cannot be opened, or hold no table.
    """
    samples: Samples = read_samples(sample_dir) if sample_dir else {}
    catalogue = read_catalogue(source)
    unit = _likely_unit(catalogue)
    lines = [
        f"database: {flow_yaml(name or catalogue.name)}",
        f"source: {flow_yaml(_written(source))}",
        "",
        "privacy:",
        *_privacy(unit),
        "",
    ]
    if catalogue.enums:
        lines += ["enums:", *(f"  {flow_yaml(e.name)}: {flow_yaml(list(e.values))}" for e in catalogue.enums), ""]
    lines.append("tables:")
    for table in catalogue.tables:
        if table.unreadable:
            lines += [f"  # left out: {flow_yaml(table.name)} may not be read by this login; grant SELECT on it", ""]
        else:
            lines += [*draft_table(table, catalogue, unit, samples.get(table.name, {})), ""]
    lines += [one_line(f"  # left out: {note}") for note in catalogue.notes]
    looked = "was read but those of the public example data" if sample_dir else "was read"
    return _INTRODUCTION.format(looked=looked) + "\n".join(lines).rstrip() + "\n"


def _written(source: str) -> str:
    """Return how the source stands in the file: paths absolute, a password replaced by an environment variable."""
    if "${" in source:
        return source
    if not is_url(expand(source)):
        return str(Path(source).resolve())
    url = parse_url(source)
    if not url.password:
        return source
    # Rendering escapes braces, so a plain word stands in for the variable first.
    return url.set(password=_PASSWORD).render_as_string(hide_password=False).replace(_PASSWORD, f"${{{_PASSWORD}}}", 1)


def _privacy(unit: str) -> Iterator[str]:
    which = "guessed from the foreign keys" if unit != UNDECIDED else "nothing in the source says"
    yield f"  unit: {flow_yaml(unit)} # decide: whose rows, with all that depends on them, are protected ({which})"
    yield "  delta: 1.0e-9 # decide: 0 = pure differential privacy; else far below 1 / (number of units)"
    yield f"  epsilons: {UNDECIDED} # decide: one release per value, like [0.8, 1.6, 3.2]; smaller is more private"
    yield f"  lifetime: {{epsilon: {UNDECIDED}}} # decide: the most that all releases together may ever spend"


def _likely_unit(catalogue: Catalogue) -> str:
    """Return the table that most others lead to through foreign keys.

    Undecided on a draw, without keys, and where another table looks more like one of persons: many schemas hang from a
    list of languages or countries.
    """
    readable: list[FoundTable] = [table for table in catalogue.tables if not table.unreadable]
    if len(readable) == 1:
        return readable[0].name
    counts = sorted(((len(dependants(catalogue, table.name)), table.name) for table in readable), reverse=True)
    tied = counts[0][0] == counts[1][0]
    most = counts[0][1]
    persons = {table.name for table in readable if describes_persons(table)}
    return UNDECIDED if tied or counts[0][0] == 0 or (persons and most not in persons) else most
