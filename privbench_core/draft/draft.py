"""Draft a first spec for a source from its catalogue.

The catalogue lists names, types and keys; it does not say what is private, how many children a parent may have or which
values are public. What follows from names is proposed; what only the owner can know is ``CHOOSE``, which `load_spec`
refuses, and is listed at the top of the draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from privbench_core.backends.catalogue import Catalogue, FoundTable
from privbench_core.backends.registry import read_catalogue
from privbench_core.draft.columns import one_line
from privbench_core.draft.identifying import describes_persons
from privbench_core.draft.keys import propose_keys, undeclared_references, with_required
from privbench_core.draft.owners import Role, Roles, propose_roles
from privbench_core.draft.samples import Samples, read_samples
from privbench_core.draft.tables import draft_table, usable_keys
from privbench_core.draft.unit import dependants, guess_unit, may_be_shared, repeated_persons
from privbench_core.errors import SpecError, did_you_mean
from privbench_core.spec.fields import UNDECIDED
from privbench_core.spec.location import PASSWORD, absolute, expand, is_spark_url, is_url, without_password
from privbench_core.spec.yaml_io import flow_yaml

EPSILONS = (0.8, 3.2)  # of the example: at 0.8 large groups are right, at 3.2 details
LIFETIME = 20.0  # as in the example; with the drafted δ = 1e-7 of it, hundreds of releases of δ = 1e-9 are admitted
_INTRODUCTION = """\
# Drafted from the catalogue of the source; no row {looked}.
# Everything in this file is public: assume that every recipient of the benchmark knows it. So take domains and bounds
# from a codebook or from general knowledge, never from the rows.
# All lines without CHOOSE have a default that works. "domain: learn" is paid for from the budget; a declared domain,
# {{min: .., max: ..}} or {{values: [..]}}, costs nothing and is exact. docs/spec.md explains every key.
"""


KeyPlace = tuple[str, tuple[str, ...], str]
"""A key by its table, columns and parent."""


@dataclass(frozen=True)
class Decisions:
    """What an owner says before the draft is written; None leaves a line to the draft.

    Attributes:
        unit: The table whose rows are protected.
        public: The tables that everybody may see.
        epsilons: One release for each.
        lifetime: The most that all releases together may ever spend.
        bounds: The most rows per parent row or unit along keys where that is the owner's promise alone, see
            `Survey.promises`.
    """

    unit: str | None = None
    public: tuple[str, ...] | None = None
    epsilons: Sequence[float] = EPSILONS
    lifetime: float = LIFETIME
    bounds: Mapping[KeyPlace, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Survey:
    """What a catalogue suggests.

    Attributes:
        catalogue: The catalogue, with proposed keys where the source declares none.
        unit: The likely unit, None where names do not say.
    """

    catalogue: Catalogue
    unit: str | None

    def outside(self, unit: str) -> tuple[str, ...]:
        """Return the tables that no key connects with the unit: they can only be public."""
        inside = dependants(self.catalogue, unit) | {unit}
        return tuple(t.name for t in self.catalogue.tables if not t.unreadable and t.name not in inside)

    def doubts(self, unit: str) -> Iterator[tuple[set[str], str]]:
        """Yield what speaks against publishing tables outside: which ones, and a sentence for their owner."""
        outside = set(self.outside(unit))
        personal = [t.name for t in self.catalogue.tables if t.name in outside and describes_persons(t)]
        if personal:
            whose = "its" if len(personal) == 1 else "their"
            yield {*personal}, f"Look at {', '.join(personal)}: {whose} columns look like those of persons."
        for name in self.outside(unit):  # an account, with its orders
            referring = [t.name for t in self.catalogue.tables if t.name != name and name in _parents_of(t)]
            inside = [other for other in referring if other not in {unit, *outside}]
            beside = [other for other in referring if other in outside]
            linked = f"{', '.join(inside)} refers to it from {unit}"
            if unit in referring and may_be_shared(name):  # else it is where a unit lives, or shops
                inside, linked = [unit], f"{unit} refers to it"
            if inside and beside:
                linked += f", and {', '.join(beside)} from outside"
                todo = f"if these rows are about the same persons, draft again with --unit {name}, which protects them"
                yield {name, *dependants(self.catalogue, name)} & outside, f"Look at {name}: {linked}; {todo}."
        looked_up = self._looked_up(unit)
        if alone := [name for name in self.outside(unit) if name not in looked_up]:
            where = f"no key leads to {'it' if len(alone) == 1 else 'them'} from {unit} or what depends on it"
            yield {*alone}, f"Look at {', '.join(alone)}: {where}; whose rows these are, no key says."
        readable = {table.name for table in self.catalogue.tables if not table.unreadable}
        for name in self.outside(unit):
            if unread := sorted(_parents_of(self.catalogue.table(name)) - readable):
                where = f"it refers to {', '.join(unread)}, which cannot be read here"
                todo = f"if those are rows of persons, {name} is not for everybody"
                yield {name, *dependants(self.catalogue, name)} & outside, f"Look at {name}: {where}; {todo}."
        todo = "if it refers to it, these rows belong to units: add the key to foreign_keys, instead of publishing them"
        for name in self.outside(unit):
            known = [table for table in self.catalogue.tables if table.name not in outside]
            for column, parent in undeclared_references(self.catalogue.table(name), known):
                yield {name}, f"Look at {name}: {column} is called after the key of {parent}; {todo}."

    def _looked_up(self, unit: str) -> set[str]:
        """Return the tables that keys lead to from the unit and what depends on it, directly or not."""
        parents = {table.name: _parents_of(table) for table in self.catalogue.tables}
        found, more = set[str](), dependants(self.catalogue, unit) | {unit}
        while more:
            found |= more
            more = {above for name in more for above in parents.get(name, ())} - found
        return found

    def promises(self, unit: str) -> dict[KeyPlace, Role]:
        """Return the keys whose bound nothing enforces, so that the owner has to promise it."""
        roles = propose_roles(self.catalogue, unit)
        usable = {
            (table.name, key.columns, key.parent)
            for table in self.catalogue.tables
            if not table.unreadable
            for key in usable_keys(table, self.catalogue)[0]
        }
        return {place: role for place, role in roles.items() if role.undecided and place in usable}


def _parents_of(table: FoundTable) -> set[str]:
    return {key.parent for key in table.foreign_keys}


def survey(source: str) -> Survey:
    """Read the catalogue of a source and guess what its keys and names allow.

    Raises:
        SourceError: The source cannot be opened, or holds no table.
    """
    catalogue = propose_keys(read_catalogue(source))
    return Survey(catalogue, guess_unit(catalogue))


def reflect(
    source: str, name: str | None = None, sample_dir: Path | None = None, decisions: Decisions | None = None
) -> str:
    """Draft a spec file.

    Args:
        source: A folder of Parquet or CSV files, a DuckDB file, or the URL of a database or of a Spark catalogue
            (``${VARIABLE}`` is expanded to connect and kept as written).
        name: Name of the database; by default that of the folder, file, schema or database.
        sample_dir: Folder of *public* example data, one Parquet or CSV file per table, to propose domains from. Its
            rows are read, and their values appear in the draft.
        decisions: What is decided already.

    Returns:
        YAML text with comments, to be edited: `load_spec` lists what is still undecided.

    Raises:
        SourceError: The source or the samples cannot be opened, or hold no table.
        SpecError: A decision names a table that is not there.
    """
    decided = decisions or Decisions()
    samples: Samples = read_samples(sample_dir) if sample_dir else {}
    found = survey(source)
    catalogue = found.catalogue
    readable = [table.name for table in catalogue.tables if not table.unreadable]
    for named in (decided.unit, *(decided.public or ())):
        if named is not None and named not in readable:
            raise SpecError(f"{named}: the source has no such table; {did_you_mean(named, readable)}")
    unit = decided.unit or found.unit
    written = _written(source)
    secret = (
        f" # the {'token' if is_spark_url(source) else 'password'} is left out: set {PASSWORD} in the environment"
        if written != source and PASSWORD in written
        else ""
    )
    lines = [
        f"database: {flow_yaml(name or catalogue.name)}",
        f"source: {flow_yaml(written)}{secret}",
        "",
        "privacy:",
        *_privacy(found, unit, decided),
        "",
    ]
    if catalogue.enums:
        lines += ["enums:", *(f"  {flow_yaml(e.name)}: {flow_yaml(list(e.values))}" for e in catalogue.enums), ""]
    lines.append("tables:")
    roles = _with_bounds(propose_roles(catalogue, unit), decided.bounds) if unit else None
    catalogue = with_required(catalogue, {place for place, role in (roles or {}).items() if role.owner})
    public = set(found.outside(unit)) if unit else set[str]()
    for table in catalogue.tables:
        if table.unreadable:
            lines += [f"  # left out: {flow_yaml(table.name)} may not be read by this login; grant SELECT on it", ""]
        else:
            lines += [
                *draft_table(table, catalogue, roles, samples.get(table.name, {}), public=table.name in public),
                "",
            ]
    lines += [one_line(f"  # left out: {note}") for note in catalogue.notes]
    lines = lines if lines[-1] else lines[:-1]
    looked = "was read but those of the public example data" if sample_dir else "was read"
    return _with_list(_INTRODUCTION.format(looked=looked).splitlines(), lines)


def _with_bounds(roles: Roles, bounds: Mapping[KeyPlace, int]) -> Roles:
    """Return the roles with the owner's promises in place of what was undecided."""
    promised = {place: replace(roles[place], undecided=False, bound=bound) for place, bound in bounds.items()}
    return {**roles, **promised}


def _written(source: str) -> str:
    """Return the source as the spec writes it: paths absolute, a password replaced by an environment variable."""
    if is_url(expand(source)):
        return absolute(without_password(source))
    return source if "${" in source else str(Path(source).resolve())


def _privacy(found: Survey, unit: str | None, decided: Decisions) -> Iterator[str]:
    if unit is None:
        todo = "decide: the table whose rows, with all that depends on them, are protected; then draft again, with"
        yield f"  unit: {UNDECIDED} # {todo} --unit TABLE: it decides about keys and public tables"
    else:
        guessed = "" if decided.unit else " (guessed from the names)"
        yield f"  unit: {flow_yaml(unit)} # one row of it, with all rows that depend on it, is protected{guessed}"
        table = found.catalogue.table(unit)
        for column in repeated_persons(table):
            note = f"{unit}.{column} looks like a person's number and may recur: then the row is not the person, and"
            yield one_line(f"  # {note} a person is protected only row by row. Give the source a table of persons.")
        yield from _public(found, unit, decided.public)
    yield "  delta: 1.0e-9 # 0 = pure differential privacy; else far below 1 / (number of units)"
    yield f"  epsilons: {flow_yaml(list(decided.epsilons))} # one release for each; smaller is more private"
    yield f"  lifetime: {{epsilon: {decided.lifetime:g}, delta: 1.0e-7}} # the most that all releases may ever spend"


def _public(found: Survey, unit: str, decided: Sequence[str] | None) -> Iterator[str]:
    """Yield the decision about the tables that no key connects with the unit."""
    outside = found.outside(unit)
    if not outside:
        return
    unconnected = [name for name in outside if name not in (decided or ())]
    if decided is not None and unconnected:
        todo = f"decide: no key leads from {', '.join(unconnected)} to the unit; declare one there, remove the table"
        yield one_line(f"  public: {UNDECIDED} # {todo}, or write it here, beside {flow_yaml(list(decided))}")
        return
    if decided is not None:
        yield f"  public: {flow_yaml(list(decided))} # published as they are"
        return
    listed = flow_yaml(list(outside))
    yield one_line(f"  # No key leads from these to the unit. Those that everybody may see are public: {listed}")
    for _, sentence in found.doubts(unit):
        yield one_line(f"  # {sentence}")
    todo = "decide: copy of the list what everybody may see; any other table needs a key that leads to the unit"
    yield f"  public: {UNDECIDED} # {todo}"


def _with_list(head: list[str], lines: list[str]) -> str:
    """Return the draft with its open decisions and their line numbers at the top."""
    open_lines = [n for n, line in enumerate(lines) if UNDECIDED in line.partition(" # ")[0]]
    if not open_lines:
        return (
            "\n".join([*head, "# Nothing is left to fill in. Check the unit and the public tables.", *lines]).rstrip()
            + "\n"
        )
    before = len(head) + len(open_lines) + 2
    owners = {n: _place(lines, n) for n in open_lines}
    listed = [f"#   line {before + n}: {owners[n]}" for n in open_lines]
    return "\n".join([*head, f"# To fill in, {len(open_lines)}:", *listed, *lines]) + "\n"


def _place(lines: Sequence[str], number: int) -> str:
    """Return what a line declares: its key, or the table and columns of a foreign key."""
    line = lines[number].strip()
    if not line.startswith("- "):
        return f"privacy.{line.partition(':')[0]}"
    table = next(above for above in reversed(lines[:number]) if above.startswith("  ") and above[2] not in " #")
    columns = line.removeprefix("- {columns: ").partition(", references")[0]
    bound = "max_children_per_unit" if "max_children_per_unit" in line else "max_children"
    return f"{bound} of {table.strip().removesuffix(':')}.{columns}"
