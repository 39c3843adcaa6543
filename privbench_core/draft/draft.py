"""Draft a first spec for a source from its catalogue.

The catalogue lists names, types and keys; it does not say what is private, how many children a parent may have or which
values are public. What follows from names is proposed; what only the owner can know is ``CHOOSE``, which `load_spec`
refuses, and is listed at the top of the draft. No default publishes: a table is public where its owner has listed it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

from privbench_core.backends.catalogue import Catalogue
from privbench_core.backends.registry import read_catalogue
from privbench_core.draft.columns import one_line
from privbench_core.draft.keys import propose_keys, usable_keys, with_required
from privbench_core.draft.publishing import Candidate, candidates
from privbench_core.draft.samples import Samples, read_samples
from privbench_core.draft.tables import draft_table
from privbench_core.draft.units import (
    KeyPlace,
    Role,
    guess_unit,
    most_cover,
    propose_roles,
    repeated_persons,
    why_unit,
    without_tables,
)
from privbench_core.errors import SpecError, did_you_mean, first_of
from privbench_core.spec import forms
from privbench_core.spec.fields import UNDECIDED
from privbench_core.spec.location import PASSWORD, absolute, expand, is_spark_url, is_url, without_password
from privbench_core.spec.yaml_io import flow_yaml

EPSILONS = (0.8, 3.2)  # of the example: at 0.8 large groups are right, at 3.2 details
ROWS_PER_PERSON = "one person may have several rows"
SCHEMAS = " # tables of the first schema go by their bare name; init --schemas reads fewer"
NOT_CARRIED_OVER = "  # not carried over: "
LIFETIME = 20.0  # as in the example; with the drafted δ = 1e-7 of it, hundreds of releases of δ = 1e-9 are admitted
_BLANKS = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|\s+""")
_INTRODUCTION = """\
# Drafted from the catalogue of the source; no row {looked}.
# Everything in this file is public: assume that every recipient of the benchmark knows it. So take domains and bounds
# from a codebook or from general knowledge, never from the rows.
# All lines without CHOOSE have a default that works. "domain: learn" is paid for from the budget; a declared domain,
# {{min: .., max: ..}} or {{values: [..]}}, costs nothing and is exact. docs/spec_reference.md has every key.
"""


@dataclass(frozen=True)
class Decisions:
    """What an owner says before the draft is written.

    Attributes:
        unit: The table whose rows are protected; None leaves it to the draft.
        public: The tables that anyone may see; others that no key connects with the unit stay to be decided.
        left_out: Tables that the benchmark does without, with the keys that refer to them.
        epsilons: One release for each.
        lifetime: The most that all releases together may ever spend.
        bounds: The most rows per parent row or unit along the keys of `Survey.promises`.
        staying: Those of them (`Role.may_stay`) whose rows stay, without their reference, when what they refer to goes.
        schemas: The schemas of PostgreSQL to read; empty for all.
    """

    unit: str | None = None
    public: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    epsilons: Sequence[float] = EPSILONS
    lifetime: float = LIFETIME
    bounds: Mapping[KeyPlace, int] = field(default_factory=dict)
    staying: Collection[KeyPlace] = ()
    schemas: tuple[str, ...] = ()


@dataclass(frozen=True)
class Survey:
    """What a catalogue suggests.

    Attributes:
        catalogue: The catalogue, with proposed keys where the source declares none.
        unit: The likely unit, None where names do not say.
    """

    catalogue: Catalogue
    unit: str | None

    @property
    def only(self) -> str | None:
        """Return the only table that can be read, None if there are several."""
        readable = self.catalogue.readable
        return readable[0].name if len(readable) == 1 else None

    def without(self, names: Sequence[str]) -> Survey:
        """Return the survey of the source without some tables."""
        return replace(self, catalogue=without_tables(self.catalogue, names))

    def candidates(self, unit: str) -> tuple[Candidate, ...]:
        """Return the tables that no key connects with the unit, with what their owner should know of them."""
        return candidates(self.catalogue, unit)

    def warning(self, unit: str) -> str | None:
        """Return in what a row of the unit's table may not be a person, None where nothing says it."""
        columns = repeated_persons(self.catalogue.table(unit))
        if not columns:
            return None
        listed = f"{', '.join(columns)} {'seems' if len(columns) == 1 else 'seem'} to identify a person"
        return (
            f"{listed} and may recur in {unit}: {ROWS_PER_PERSON}. Then each row would be protected, but "
            f"not the person. In that case, add to the source a table of persons that {unit} refers to, and make "
            "that table the unit."
        )

    def promises(self, unit: str) -> dict[KeyPlace, Role]:
        """Return the keys whose bound nothing enforces, so that the owner has to promise it."""
        roles = propose_roles(self.catalogue, unit)
        usable = {
            (table.name, key.columns, key.parent)
            for table in self.catalogue.readable
            for key in usable_keys(table, self.catalogue)[0]
        }
        return {place: role for place, role in roles.items() if role.undecided and place in usable}


def survey(source: str, schemas: tuple[str, ...] = ()) -> Survey:
    """Read the catalogue of a source, see `read_catalogue`, and guess what its keys and names allow.

    Raises:
        SourceError: The source cannot be opened, or holds no table.
    """
    catalogue = propose_keys(read_catalogue(source, schemas))
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
    whole = survey(source, decided.schemas)
    _check_decisions(whole, decided)
    found = whole.without(decided.left_out)
    catalogue = found.catalogue
    unit = decided.unit or found.unit
    assumed = unit or found.only
    lines = [f"database: {flow_yaml(name or catalogue.name)}", f"source: {_written(source)}"]
    if catalogue.schemas:
        lines.append(f"schemas: {flow_yaml(list(catalogue.schemas))}{SCHEMAS}")
    lines += ["", "privacy:", *_privacy(found, unit, decided), ""]
    if catalogue.enums:
        lines += ["enums:", *(f"  {flow_yaml(e.name)}: {flow_yaml(list(e.values))}" for e in catalogue.enums), ""]
    lines.append("tables:")
    roles = None
    if assumed:  # with the owner's promises in place of what was undecided
        roles = dict(propose_roles(catalogue, assumed))
        roles |= {
            place: replace(roles[place], undecided=False, bound=most, stays=place in decided.staying)
            for place, most in decided.bounds.items()
        }
        catalogue = with_required(catalogue, {place for place, role in roles.items() if role.owner})
    outside = {candidate.table for candidate in found.candidates(unit)} if unit else set[str]()
    for table in catalogue.tables:
        if table.unreadable:
            lines += [f"  # left out: {flow_yaml(table.name)} may not be read by this login; grant SELECT on it", ""]
        else:
            sampled = samples.get(table.name, {})
            lines += [*draft_table(table, catalogue, roles, sampled, outside=outside), ""]
    lines += [one_line(f"  # left out: {note}") for note in catalogue.notes]
    lines += map(one_line, (*_others(catalogue), *_views(catalogue)))
    looked = "was read but those of the public example data" if sample_dir else "was read"
    return _with_list(_INTRODUCTION.format(looked=looked).splitlines(), lines)


def _others(catalogue: Catalogue) -> Iterator[str]:
    """Yield what no spec can hold, in one line."""
    kinds = {kind: [name for other, name in catalogue.others if other == kind] for kind, _ in catalogue.others}
    listed = []
    for kind, names in kinds.items():
        listed.append(f"{len(names)} {kind}{'s'[: len(names) > 1]} ({first_of(names)})")
    if listed:
        yield f"{NOT_CARRIED_OVER}{'; '.join(listed)}"


def _views(catalogue: Catalogue) -> Iterator[str]:
    """Yield the views as comments, for their owner to decide; those that would not load with a reason."""
    columns: dict[str, set[str | None]] = {
        table.name: {None, *table.usable, *(found.name for found, _ in table.generated)} for table in catalogue.readable
    }
    kept: dict[str, str] = {}
    for found in catalogue.views:
        view, reads = found.view, [(name, column) for name, column in found.reads if name not in kept]
        lost = [name if name not in columns else f"{name}.{c}" for name, c in reads if c not in columns.get(name, ())]
        if found.needs or lost:
            needs = f"the {found.needs}" if found.needs else ", ".join(dict.fromkeys(lost))
            yield f"  # left out: the view {view.name}, which needs {needs}"
        else:
            text = _BLANKS.sub(lambda match: match[1] or " ", view.sql)
            kept[view.name] = flow_yaml(forms.VIEW.write(replace(view, sql=text)))
    if kept:
        yield ""
        yield "# To keep views (without their indexes and comments), uncomment `views:` and their lines. A definition"
        yield "# contains no rows, but it may contain constants: keep only views whose text anyone may see."
        yield "# views:"
    yield from (f"#   {flow_yaml(name)}: {written}" for name, written in kept.items())


def _check_decisions(found: Survey, decided: Decisions) -> None:
    """Raise SpecError where a decision names no table, or decisions contradict each other."""
    readable = [table.name for table in found.catalogue.readable]
    for named in (decided.unit, *decided.public, *decided.left_out):
        if named is not None and named not in readable:
            raise SpecError(f"{named}: the source has no such table; {did_you_mean(named, readable)}")
    for name in decided.left_out:
        if name in decided.public:
            raise SpecError(f"{name}: is named both as public and as left out; choose one")
        if name == (decided.unit or found.unit):
            raise SpecError(f"{name}: its rows are the privacy units, so it cannot be left out; name another --unit")


def _written(source: str) -> str:
    """Return the source as the spec writes it: paths absolute, a password replaced by an environment variable."""
    if not is_url(expand(source)):
        return flow_yaml(source if "${" in source else str(Path(source).resolve()))
    written = absolute(without_password(source))
    if written == source or PASSWORD not in written:
        return flow_yaml(written)
    what = "token" if is_spark_url(source) else "password"
    return f"{flow_yaml(written)} # the {what} is not written here: set {PASSWORD} in the environment"


def _privacy(found: Survey, unit: str | None, decided: Decisions) -> Iterator[str]:
    assumed = unit or found.only
    if assumed and (warning := found.warning(assumed)):
        yield one_line(f"  # {warning}")
    if unit is not None:
        guessed = "" if decided.unit else f" ({why_unit(found.catalogue, unit)})"
        yield f"  unit: {flow_yaml(unit)} # each row is protected, with all rows that depend on it{guessed}"
        yield from _public(found.candidates(unit), unit, decided.public)
    elif assumed:
        name = flow_yaml(assumed)
        todo = f"decide: write {name} if each person has at most one row there, because each row is protected alone"
        yield one_line(f"  unit: {UNDECIDED} # {todo}; otherwise add a table of persons to the source")
    else:
        todo = "decide: whose rows, with all rows that depend on them, are protected? Draft again with"
        yield f"  unit: {UNDECIDED} # {todo} --unit TABLE, because keys and public tables follow from it"
        if best := most_cover(found.catalogue):
            yield one_line(f"  # Candidates, with how many tables depend on them and are protected: {best}")
    yield "  delta: 1.0e-9 # 0 = pure differential privacy; else far below 1 / (number of units)"
    yield f"  epsilons: {flow_yaml(list(decided.epsilons))} # one release for each; smaller is more private"
    yield f"  lifetime: {{epsilon: {decided.lifetime:g}, delta: 1.0e-7}} # the most that all releases may ever spend"


def _public(outside: Sequence[Candidate], unit: str, decided: Sequence[str]) -> Iterator[str]:
    """Yield the tables that the owner publishes, and the open decision about the others outside: none is published."""
    waiting = [candidate for candidate in outside if candidate.table not in decided]
    if not waiting:
        if decided:
            yield f"  public: {flow_yaml(list(decided))} # published as they are"
        return
    yield one_line(
        f"  # No foreign key leads from the tables below to {unit}, so their rows belong to no unit. Decide for each:"
    )
    yield "  # - Anyone may see its rows as they are: remove the # before its name."
    yield "  # - It is not used, but belongs to the schema: add empty: true to its block, if no table refers to it."
    todo = "delete its block under tables and the foreign keys to it with their columns, or draft"
    yield f"  # - The benchmark can do without it: {todo} again with --leave-out TABLE,.."
    todo = "add to its block a foreign key that leads there, and domains for its columns"
    yield one_line(f"  # - Its rows are about {unit}: {todo}.")
    yield "  public:"
    yield from (f"    - {flow_yaml(name)} # published as it is" for name in decided)
    todo = f"no table{' below' if decided else ''} is public yet"
    yield f"    - {UNDECIDED} # decide about each table below, then delete this line; {todo}"
    yield from (one_line(f"    # - {flow_yaml(each.table)} # {each.sentence}") for each in waiting)


def _with_list(head: list[str], lines: list[str]) -> str:
    """Return the draft with its open decisions and their line numbers at the top."""
    open_lines = [n for n, line in enumerate(lines) if UNDECIDED in line.partition(" # ")[0]]
    before = len(head) + len(open_lines) + 2
    listed = [f"#   line {before + n}: {_place(lines, n)}" for n in open_lines]
    done = "Nothing is left to fill in. Check the unit and the public tables."
    found = f"To fill in, {len(listed)}:" if listed else done
    return "\n".join([*head, f"# {found}", *listed, *lines]).rstrip() + "\n"


def _place(lines: Sequence[str], number: int) -> str:
    """Return what a line declares: its key, or the table and columns of a foreign key."""
    line = lines[number].strip()
    if line.startswith(f"- {UNDECIDED}"):
        waiting = takewhile(lambda below: below.startswith("    # - "), lines[number + 1 :])
        return f"privacy.public: {', '.join(below.split(' # ')[1].removeprefix('- ') for below in waiting)}"
    if not line.startswith("- "):
        return f"privacy.{line.partition(':')[0]}"
    table = next(above for above in reversed(lines[:number]) if above.startswith("  ") and above[2] not in " #")
    columns = line.removeprefix("- {columns: ").partition(", references")[0]
    bound = "max_children_per_unit" if "max_children_per_unit" in line else "max_children"
    bound = f"on_unit_removed and {bound}" if f"on_unit_removed: {UNDECIDED}" in line else bound
    return f"{bound} of {table.strip().removesuffix(':')}.{columns}"
