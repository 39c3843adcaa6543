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
from privbench_core.spec.budget import PRIVACY, dump_budget, parse_budget
from privbench_core.spec.dump import dump_enums, dump_tables
from privbench_core.spec.engine import ENGINES, check_engine
from privbench_core.spec.fidelity import FIDELITY, FidelityPolicy
from privbench_core.spec.fields import (
    NAME,
    TEXT,
    Form,
    Key,
    Kind,
    Node,
    Problems,
    anything,
    as_name,
    either,
    list_of,
    named,
)
from privbench_core.spec.location import home, relative, resolve
from privbench_core.spec.model import DEFAULT_ENGINE, DEFAULT_STATE, DEFAULT_SYNTHESIZER, Spec
from privbench_core.spec.parse import ENUMS, TABLE, parse_enums, parse_tables
from privbench_core.spec.rules import find_problems
from privbench_core.spec.rules_of_keys import infer_keys
from privbench_core.spec.yaml_io import read_yaml, write_yaml

_PUBLIC_TEXT = (
    "the text of the queries is published, so declare that it says nothing about private rows: write public: true, "
    "or leave the workload out"
)
_CRON_FIELDS = 5
_CRON_FIELD = re.compile(r"[\d*/,\-A-Za-z?#]+")
_OWNER = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+|team:[A-Za-z0-9_-]+")


def _cron(value: object) -> str | None:
    parts = value.split() if isinstance(value, str) else []
    return " ".join(parts) if len(parts) == _CRON_FIELDS and all(map(_CRON_FIELD.fullmatch, parts)) else None


def _owner(value: object) -> str | None:
    name = as_name(value)
    return name if name and _OWNER.fullmatch(name) else None


_OWNERS = Kind(_owner, TEXT.schema)
_SCHEDULE = Key(Kind(_cron, TEXT.schema), 'write five cron fields in quotes, like "0 3 * * 1"', None)
_SYNTHESIZER = Form(
    name=Key(NAME, "name a synthesizer, like privbench"),
    options=Key(named(anything({})), "write a mapping of parameters", None),
)
_WORKLOAD = Form(
    file=Key(NAME, "name a file of SELECT statements, like queries.sql"),
    public=Key(Kind(lambda value: value if value is True else None, {"const": True}), _PUBLIC_TEXT),
)
SPEC = Form(
    database=Key(NAME, "name the database"),
    source=Key(NAME, "write a folder, a DuckDB file or a URL"),
    privacy=Key(PRIVACY.kind, "declare unit, delta, epsilons and lifetime"),
    synthesizer=Key(anything(either(NAME, _SYNTHESIZER.kind).schema), "name a synthesizer, like privbench", None),
    fidelity=Key(FIDELITY.kind, "write a mapping like {block: true}", None),
    schedule=_SCHEDULE,
    owners=Key(
        Kind(
            lambda value: list_of(_OWNERS, 1).read(value if isinstance(value, list) else [value]),
            either(_OWNERS, list_of(_OWNERS, 1)).schema,
        ),
        'list e-mail addresses or teams, like [data@example.org, "team:statistics"]',
        (),
    ),
    observe=_SCHEDULE,
    state=Key(NAME, "write a folder", None),
    engine=Key(Kind(as_name, {"enum": [*ENGINES]}), f"write one of {', '.join(ENGINES)}", DEFAULT_ENGINE),
    cluster=Key(anything(TEXT.schema), "write sc://host:port, or ${VARIABLE}", None),
    workload=Key(_WORKLOAD.kind, f"write {{file: queries.sql, public: true}}: {_PUBLIC_TEXT}", None),
    enums=ENUMS,
    tables=Key(named(TABLE.kind, 1), "list them as name: {primary_key:, columns:}"),
)


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
    found, folder = node.read(SPEC), path.parent
    privacy = node.inside("privacy", where="privacy")
    declared, budget = parse_budget(privacy) if found["privacy"] else (dict.fromkeys(PRIVACY.keys), None)
    synthesizer, options = DEFAULT_SYNTHESIZER, None
    if found["synthesizer"]:
        chosen = node.inside("synthesizer", short="name", where="synthesizer").read(_SYNTHESIZER)
        synthesizer, options = chosen["name"], chosen["options"]
    fidelity = node.inside("fidelity", where="fidelity").build(FIDELITY, FidelityPolicy) or FidelityPolicy()
    workload = node.inside("workload", where="workload").read(_WORKLOAD)["file"] if found["workload"] else None
    if found["tables"] is None:
        return None
    enums = parse_enums(node)
    public = () if declared["public"] is None and not privacy.has("public") else declared["public"]
    for name in public or ():
        if name not in found["tables"]:
            mistake = f"public lists {name!r}, which is no table"
            node.problems.add("privacy", mistake, did_you_mean(name, found["tables"]))
    parsed = parse_tables(_with_public(found["tables"], public or ()), node.problems, enums)
    schema = infer_keys(Schema(found["database"] or "database", parsed.tables, declared["unit"] or "", enums))
    # A wrong budget is reported already: assume the δ that allows everything.
    delta = budget["delta"] if budget else 1.0
    if public is not None:  # else no rule on keys makes sense yet
        if "public" in privacy.fields:
            schema = _all_decided(schema, node.problems)
        node.problems.lines += find_problems(schema, delta=delta, broken=frozenset(node.problems.broken))
    check_engine(node, found["engine"], found["source"] or "", found["cluster"], schema)
    if found["source"] is None or budget is None:
        return None
    return Spec(
        schema,
        resolve(found["source"], folder),
        path,
        **budget,
        synthesizer=synthesizer,
        options=options or {},
        state=Path(resolve(found["state"] or DEFAULT_STATE, folder)),
        orphans=parsed.orphans,
        schedule=found["schedule"],
        observe=found["observe"],
        workload=(folder / home(workload)).resolve() if workload else None,
        changes=parsed.changes,
        owners=tuple(dict.fromkeys(found["owners"])),
        fidelity=fidelity,
        engine=found["engine"],
        cluster=found["cluster"],
    )


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
        problems.add("privacy", found, PRIVACY.keys["public"].todo)
    return replace(schema, tables=tuple(replace(t, public=t.public or t.name in waiting) for t in schema.tables))


def _with_public(tables: Mapping[str, Any], public: Sequence[str]) -> dict[str, Any]:
    return {
        name: {**raw, "public": True} if name in public and isinstance(raw, dict) else raw
        for name, raw in tables.items()
    }


def dump_spec(spec: Spec) -> str:
    """Return the spec as YAML; `load_spec` of it, saved at ``spec.path``, returns an equal spec."""
    folder, workload = spec.path.parent, spec.workload
    special = {
        "database": spec.schema.name,
        "source": relative(spec.source, folder),
        "privacy": dump_budget(spec),
        "synthesizer": {"name": spec.synthesizer, "options": dict(spec.options)} if spec.options else spec.synthesizer,
        "fidelity": FIDELITY.write(vars(spec.fidelity)) or None,
        "owners": list(spec.owners) or (),
        "state": relative(str(spec.state), folder),
        "workload": {"file": relative(str(workload), folder), "public": True} if workload else None,
        "enums": dump_enums(spec.schema) or None,
        "tables": dump_tables(spec.schema, spec.orphans, spec.changes),
    }
    return write_yaml(SPEC.write(vars(spec) | special))
