"""Load and dump the spec file, which holds all decisions of the owner and all public information.

`load_spec` reads it and `dump_spec` writes it. Both use the same frozen `Spec`, so a program can make a spec as well.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from privbench_core.errors import SourceError, SpecError, did_you_mean, most_similar
from privbench_core.files import as_path
from privbench_core.schema.constraints import reachable
from privbench_core.schema.tables import Schema
from privbench_core.spec import forms
from privbench_core.spec.ddl import parse_views
from privbench_core.spec.dump import dump_enums, dump_tables, dump_views
from privbench_core.spec.fields import Node, Problems
from privbench_core.spec.location import check_spark_url, home, is_spark_url, relative, resolve, split_spark_url
from privbench_core.spec.model import (
    DEFAULT_STATE,
    DEFAULT_SYNTHESIZER,
    DecayingRefreshes,
    EqualRefreshes,
    FidelityPolicy,
    RefreshPolicy,
    Spec,
    engine_problem,
)
from privbench_core.spec.parse import parse_enums, parse_tables
from privbench_core.spec.rules import find_problems
from privbench_core.spec.rules_of_keys import infer_keys, without_known_owner
from privbench_core.spec.yaml_io import read_yaml, write_yaml

_CLUSTER = re.compile(r"sc://.|\$\{\w+\}")
_LEDGER = re.compile(r"(postgres(ql(\+psycopg)?)?://\S+|\$\{\w+\})$")


def load_spec(path: str | Path) -> Spec:
    """Read and validate a spec file.

    Raises:
        SpecError: With every problem found; each line names the place, what was found and what to do.
    """
    path = as_path(path, "spec", SpecError).absolute()
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
    found, folder = node.read(forms.SPEC), path.parent
    privacy = node.inside("privacy", where="privacy")
    declared, budget = _budget(privacy) if found["privacy"] else (dict.fromkeys(forms.PRIVACY.keys), None)
    chosen: dict[str, Any] = {"name": DEFAULT_SYNTHESIZER, "options": None}
    if found["synthesizer"]:
        chosen = node.inside("synthesizer", short="name", where="synthesizer").read(forms.SYNTHESIZER)
    fidelity = node.inside("fidelity", where="fidelity").build(forms.FIDELITY, FidelityPolicy) or FidelityPolicy()
    workload = node.inside("workload", where="workload").read(forms.WORKLOAD) if found["workload"] else {}
    if found["tables"] is None:
        return None
    enums, owners = parse_enums(node), found["owners"]
    public = () if declared["public"] is None and not privacy.has("public") else declared["public"]
    for name in [name for name in public or () if name not in found["tables"]]:
        mistake = f"public lists {name!r}, which is not a table"
        node.problems.add("privacy", mistake, did_you_mean(name, found["tables"]))
        public = (*(public or ()), most_similar(name, found["tables"]))
    tables = {
        name: {**raw, "public": True} if name in (public or ()) and isinstance(raw, dict) else raw
        for name, raw in found["tables"].items()
    }
    parsed = parse_tables(tables, node.problems, enums)
    name, unit, schemas = found["database"] or "database", declared["unit"] or "", found["schemas"]
    schema = infer_keys(Schema(name, parsed.tables, unit, enums, schemas, parse_views(node)))
    if schemas and found["source"] and not found["source"].startswith(("postgres", "${")):
        node.problems.add("spec", "only PostgreSQL sources have schemas, and this source is not one", "remove schemas")
    # A wrong budget is reported already: assume the δ that allows everything.
    delta = budget["delta"] if budget else 1.0
    if public is not None:  # else no rule on keys makes sense yet
        if "public" in privacy.fields:
            schema = _all_decided(schema, node.problems)
        node.problems.lines += find_problems(schema, delta=delta, broken=frozenset(node.problems.broken))
    _check_engine(node, found["engine"], found["source"] or "", found["cluster"], schema)
    if found["source"] is None or budget is None:
        return None
    return Spec(
        schema,
        resolve(found["source"], folder),
        path,
        **budget,
        **{name: found[name] for name in ("schedule", "observe", "engine", "cluster")},
        synthesizer=chosen["name"],
        options=chosen["options"] or {},
        state=Path(resolve(found["state"] or DEFAULT_STATE, folder)),
        orphans=parsed.orphans,
        workload=(folder / home(workload["file"])).resolve() if workload.get("file") else None,
        literals=workload.get("literals", "rebind"),
        changes=parsed.changes,
        owners=tuple(dict.fromkeys([owners] if isinstance(owners, str) else owners)),
        fidelity=fidelity,
    )


def _budget(node: Node) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return what stands at each key of ``privacy``, and the fields of `Spec` that follow from it.

    The latter are None if one of them is missing or wrong.
    """
    found = node.read(forms.PRIVACY)
    epsilons, delta, ledger = found["epsilons"], found["delta"], found["ledger"]
    refresh = _refresh(node)
    lifetime = node.inside("lifetime", short="epsilon", where="privacy.lifetime")
    limits = lifetime.read(forms.LIFETIME) if node.has("lifetime") else {"epsilon": None, "delta": None}
    total, total_delta = limits["epsilon"], limits["delta"] if lifetime.has("delta") else delta
    repeated = [epsilon for epsilon in epsilons or () if epsilons.count(epsilon) > 1]
    if repeated:
        node.wrong("epsilons", f"{repeated[0]!r} occurs twice; list each value once")
    if ledger is not None and not (isinstance(ledger, str) and _LEDGER.match(ledger)):
        # The text is not repeated: it may hold a password.
        node.problems.lines.append(f"privacy.ledger: not a PostgreSQL URL; {forms.LEDGER_FORM}")
    if delta is None or total is None or total_delta is None or not epsilons:
        return found, None
    if total_delta < delta:
        lifetime.wrong("delta", f"it cannot be below privacy.delta {delta!r}")
    least = min(epsilons)
    if total < least:
        todo = f"it cannot pay for the smallest release, {least!r}; list a smaller ε in epsilons, or raise it"
        lifetime.wrong("epsilon", todo)
    if isinstance(refresh, EqualRefreshes) and not least <= refresh.epsilon <= total:
        todo = f"one refresh costs at least the smallest release, {least!r}, and at most the lifetime, {total!r}"
        node.wrong("refresh", todo)
    same = {name: found[name] for name in ("epsilons", "delta", "cohort", "ledger")}
    return found, {**same, "lifetime_epsilon": total, "lifetime_delta": total_delta, "refresh": refresh}


def _refresh(node: Node) -> RefreshPolicy | None:
    inner = node.inside("refresh", where="privacy.refresh")
    keys = set(inner.fields)
    if keys == set(forms.EQUAL_REFRESHES.keys):
        return inner.build(forms.EQUAL_REFRESHES, EqualRefreshes)
    if keys == set(forms.DECAYING_REFRESHES.keys):
        return inner.build(forms.DECAYING_REFRESHES, DecayingRefreshes)
    if isinstance(node.fields.get("refresh"), dict):
        node.wrong("refresh", forms.PRIVACY.keys["refresh"].todo)
    return None


def _all_decided(schema: Schema, problems: Problems) -> Schema:
    """Report the private tables that no key connects with the unit, where a list of public tables leaves some out.

    Returns:
        The schema with these as public, so that later rules say what else is wrong; the spec is refused anyway.
    """
    if schema.unit not in schema.by_name:
        return schema
    parents = {table.name: {key.parent for key in table.foreign_keys} for table in schema.tables}
    reached = reachable(schema.unit, lambda name: (child for child in parents if name in parents[child]))
    reached |= without_known_owner(schema, problems.broken)
    waiting = [table.name for table in schema.tables if not table.public and table.name not in reached]
    if waiting:
        found = f"public is not decided for {', '.join(waiting)}: no foreign key leads from there to {schema.unit}"
        problems.add("privacy", found, forms.PRIVACY.keys["public"].todo)
    return replace(schema, tables=tuple(replace(t, public=t.public or t.name in waiting) for t in schema.tables))


def dump_spec(spec: Spec) -> str:
    """Return the spec as YAML; `load_spec` of it, saved at ``spec.path``, returns an equal spec."""
    folder, refresh, schema = spec.path.parent, spec.refresh, spec.schema
    form = forms.EQUAL_REFRESHES if isinstance(refresh, EqualRefreshes) else forms.DECAYING_REFRESHES
    privacy = forms.PRIVACY.write(
        spec,
        unit=schema.unit,
        epsilons=list(spec.epsilons),
        lifetime={"epsilon": spec.lifetime_epsilon, "delta": spec.lifetime_delta},
        refresh=None if refresh is None else form.write(refresh),
    )
    content = forms.SPEC.write(
        spec,
        database=schema.name,
        source=relative(spec.source, folder),
        schemas=list(schema.schemas) or None,
        privacy=privacy,
        synthesizer={"name": spec.synthesizer, "options": dict(spec.options)} if spec.options else spec.synthesizer,
        fidelity=forms.FIDELITY.write(spec.fidelity) or None,
        owners=list(spec.owners) or None,
        state=relative(str(spec.state), folder),
        workload=forms.WORKLOAD.write(spec, file=relative(str(spec.workload), folder), public=True)
        if spec.workload
        else None,
        enums=dump_enums(schema) or None,
        tables=dump_tables(schema, spec.orphans, spec.changes),
        views=dump_views(schema) or None,
    )
    return write_yaml(content)


def _check_engine(node: Node, engine: str, source: str, cluster: object, schema: Schema) -> None:
    """Report what is wrong with the engine and the cluster that a spec names to the problems of ``node``."""
    if cluster is not None and not (isinstance(cluster, str) and _CLUSTER.match(cluster)):
        # The text is not repeated: it may hold a token.
        node.problems.lines.append("cluster: not a URL of Spark Connect; write sc://host:port, or ${VARIABLE}")
        return
    if is_spark_url(source):
        try:
            check_spark_url(source)
        except SourceError as error:
            node.problems.lines.append(str(error))
        if cluster is not None and split_spark_url(cluster)[0] != split_spark_url(source)[0]:
            found = "cluster is not the cluster of source, where the tables are and their rows are counted"
            node.problems.add("spec", found, "remove cluster")
    problem = engine_problem(engine, source, cluster, schema)
    if problem:
        node.problems.add("spec", *problem)
