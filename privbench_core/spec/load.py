"""Load and dump the spec file, which holds all decisions of the owner and all public information.

`load_spec` reads it and `dump_spec` writes it. Both use the same frozen `Spec`, so a program can make a spec as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from privbench_core.errors import SpecError, did_you_mean
from privbench_core.schema.tables import Schema
from privbench_core.spec.budget import dump_budget, parse_budget, parse_ledger
from privbench_core.spec.dump import dump_enums, dump_tables
from privbench_core.spec.engine import parse_engine
from privbench_core.spec.fidelity import dump_fidelity, parse_fidelity
from privbench_core.spec.fields import Node, Problems, as_name
from privbench_core.spec.location import home, relative, resolve
from privbench_core.spec.model import _DEFAULT_STATE, _DEFAULT_SYNTHESIZER, DEFAULT_ENGINE, Spec
from privbench_core.spec.parse import parse_tables
from privbench_core.spec.parts import parse_enums
from privbench_core.spec.rules import find_problems
from privbench_core.spec.rules_of_keys import infer_keys
from privbench_core.spec.yaml_io import read_yaml, write_yaml

_WORKLOAD = "{file: queries.sql, public: true}"
_PUBLIC_TEXT = (
    "the text of the queries is published, so declare that it says nothing about private rows: write public: true, "
    "or leave the workload out"
)
_PUBLIC = (
    "list a table if anyone may see its rows, like public: [country, product]; else delete it with the foreign keys "
    "that refer to it, or add a foreign key that leads to the unit"
)
_CRON_FIELDS = 5
_CRON_FIELD = re.compile(r"[\d*/,\-A-Za-z?#]+")
_OWNER = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+|team:[A-Za-z0-9_-]+")


def load_spec(path: str | Path) -> Spec:
    """Read and validate a spec file.

    Raises:
        SpecError: With every problem found; each line names the place, what was found and what to do.
    """
    path = Path(path).absolute()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError(f"{path.name}: not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise SpecError(f"{path.name}: cannot be read ({error.strerror}); check the path") from None
    content, duplicates = read_yaml(text)
    problems = Problems(lines=duplicates)
    if not isinstance(content, dict):
        raise SpecError([*duplicates, "spec: holds no keys; start from privbench init SOURCE -o spec.yaml"])
    spec = _spec(Node("spec", content, problems), path)
    if problems.lines or spec is None:
        raise SpecError(problems.lines)
    return spec


def _spec(node: Node, path: Path) -> Spec | None:
    node.only(
        "database",
        "source",
        "privacy",
        "synthesizer",
        "fidelity",
        "schedule",
        "observe",
        "owners",
        "state",
        "engine",
        "cluster",
        "workload",
        "enums",
        "tables",
    )
    database = node.name("database", "name the database")
    source = node.name("source", "write a folder, a DuckDB file or a URL")
    state = node.name("state", "write a folder") if node.has("state") else _DEFAULT_STATE
    synthesizer, options = _synthesizer(node)
    fidelity = parse_fidelity(node)
    schedule, observe = _cron(node, "schedule"), _cron(node, "observe")
    owners = _owners(node)
    workload = _workload(node, path.parent)
    privacy = node.mapping("privacy", "declare unit, delta, epsilons and lifetime")
    unit = privacy.name("unit", "name the table whose rows are protected") if privacy else None
    budget = parse_budget(privacy) if privacy else None
    ledger = parse_ledger(privacy) if privacy else None
    tables = node.mapping("tables", "list them as name: {primary_key:, columns:}")
    if tables is None:
        return None
    enums = parse_enums(node)
    public = _public(privacy, tables) if privacy else ()
    parsed = parse_tables(Node(tables.where, _with_public(tables.fields, public or ()), node.problems), enums)
    schema = infer_keys(Schema(database or "database", parsed.tables, unit or "", enums))
    # A wrong budget is reported already: assume the δ that allows everything.
    delta = budget["delta"] if budget else 1.0
    if public is not None:  # else no rule on keys makes sense yet
        if privacy and "public" in privacy.fields:
            schema = _all_decided(schema, node.problems)
        node.problems.lines += find_problems(schema, delta=delta, broken=frozenset(node.problems.broken))
    engine, cluster = parse_engine(node, source, schema)
    if source is None or state is None or budget is None:
        return None
    folder = path.parent
    return Spec(
        schema, resolve(source, folder), path, **budget, synthesizer=synthesizer, options=options,
        state=Path(resolve(state, folder)), orphans=parsed.orphans, schedule=schedule, observe=observe,
        workload=workload, changes=parsed.changes, ledger=ledger,
        owners=owners, fidelity=fidelity, engine=engine, cluster=cluster,
    )  # fmt: skip


def _public(privacy: Node, tables: Node) -> tuple[str, ...] | None:
    """Return the tables that ``privacy.public`` lists; None if it is wrong, as far as that can be known here."""
    if not privacy.has("public") or privacy.fields["public"] == []:
        return ()
    names = privacy.names("public", _PUBLIC)
    for name in names or ():
        if name not in tables.fields:
            privacy.problems.add(
                "privacy", f"public lists {name!r}, which is no table", did_you_mean(name, tables.fields)
            )
    return names


def _all_decided(schema: Schema, problems: Problems) -> Schema:
    """Report the private tables that no key connects with the unit, where a list of public tables leaves some out.

    Returns:
        The schema with these as public, so that later rules say what else is wrong; the spec is refused anyway.
    """
    reached: set[str] = set()
    more = {schema.unit} & {*schema.by_name}
    while more:
        reached |= more
        more = {table.name for table in schema.tables if {key.parent for key in table.foreign_keys} & reached} - reached
    private = [t.name for t in schema.tables if not t.public and f"{t.name}.foreign_keys" not in problems.broken]
    waiting = [name for name in private if reached and name not in reached]
    if waiting:
        found = f"public is not decided for {', '.join(waiting)}: no foreign key leads from there to {schema.unit}"
        problems.add("privacy", found, _PUBLIC)
    return replace(schema, tables=tuple(replace(t, public=t.public or t.name in waiting) for t in schema.tables))


def _with_public(tables: Mapping[str, Any], public: Sequence[str]) -> dict[str, Any]:
    return {
        name: {**raw, "public": True} if name in public and isinstance(raw, dict) else raw
        for name, raw in tables.items()
    }


def _synthesizer(node: Node) -> tuple[str, dict[str, Any]]:
    raw = node.fields.get("synthesizer") or _DEFAULT_SYNTHESIZER
    inner = Node("synthesizer", raw if isinstance(raw, dict) else {"name": raw}, node.problems)
    inner.only("name", "options")
    options = inner.fields.get("options") or {}
    if not isinstance(options, dict):
        inner.wrong("options", "write a mapping of parameters")
        options = {}
    return inner.name("name", "name a synthesizer, like privbench") or _DEFAULT_SYNTHESIZER, options


def _cron(node: Node, key: str) -> str | None:
    raw = node.fields.get(key)
    if raw is None:
        return None
    parts = raw.split() if isinstance(raw, str) else []
    if len(parts) != _CRON_FIELDS or not all(_CRON_FIELD.fullmatch(part) for part in parts):
        node.wrong(key, 'write five cron fields in quotes, like "0 3 * * 1"')
        return None
    return " ".join(parts)


def _owners(node: Node) -> tuple[str, ...]:
    raw = node.fields.get("owners")
    if raw is None:
        return ()
    listed = raw if isinstance(raw, list) else [raw]
    owners = tuple(name for name in map(as_name, listed) if name is not None and _OWNER.fullmatch(name))
    if not owners or len(owners) < len(listed):
        node.wrong("owners", 'list e-mail addresses or teams, like [data@example.org, "team:statistics"]')
        return ()
    return tuple(dict.fromkeys(owners))


def _workload(node: Node, folder: Path) -> Path | None:
    raw = node.fields.get("workload")
    if raw is None:
        return None
    if not isinstance(raw, dict):
        node.wrong("workload", f"write {_WORKLOAD}: {_PUBLIC_TEXT}")
        return None
    inner = Node("workload", raw, node.problems)
    inner.only("file", "public")
    file = inner.name("file", "name a file of SELECT statements, like queries.sql")
    if inner.fields.get("public") is not True:
        inner.wrong("public", _PUBLIC_TEXT)
    return (folder / home(file)).resolve() if file else None


def dump_spec(spec: Spec) -> str:
    """Return the spec as YAML; `load_spec` of it, saved at ``spec.path``, returns an equal spec."""
    folder = spec.path.parent
    named = {"name": spec.synthesizer, "options": dict(spec.options)}
    content: dict[str, Any] = {"database": spec.schema.name, "source": relative(spec.source, folder)}
    content |= {"privacy": dump_budget(spec), "synthesizer": named if spec.options else spec.synthesizer}
    if fidelity := dump_fidelity(spec.fidelity):
        content["fidelity"] = fidelity
    if spec.schedule:
        content["schedule"] = spec.schedule
    if spec.owners:
        content["owners"] = list(spec.owners)
    if spec.observe:
        content["observe"] = spec.observe
    content["state"] = relative(str(spec.state), folder)
    if spec.engine != DEFAULT_ENGINE:
        content["engine"] = spec.engine
    if spec.cluster:
        content["cluster"] = spec.cluster
    if spec.workload:
        content["workload"] = {"file": relative(str(spec.workload), folder), "public": True}
    if spec.schema.enums:
        content["enums"] = dump_enums(spec.schema)
    content["tables"] = dump_tables(spec.schema, spec.orphans, spec.changes)
    return write_yaml(content)
