"""Whatever a catalogue holds, a draft whose owner decides nothing publishes nothing and is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from privbench_core.backends.catalogue import Catalogue, FoundColumn, FoundKey, FoundTable
from privbench_core.cli import app
from privbench_core.draft.draft import Decisions, Survey, reflect
from privbench_core.draft.keys import propose_keys
from privbench_core.errors import SpecError
from privbench_core.schema.columns import ColumnType
from privbench_core.spec.load import load_spec
from tests.helpers.examples import examples

# Words that answers and marks of drafts are made of are names as well.
NAMES = [
    "none", "-", "n", "y", "no", "public", "all", "CHOICE", "a,b", "a b", "#", "x # y", "victims", "genomes", "notes",
    "addresses", "wards", "countries", "customer", "patients", "visits", "people", "account", "[t]", "12", "null",
]  # fmt: skip
COLUMNS = ["born", "wage", "email", "body", "label", "kind", "street", "size", "customer_id", "visits_id", "name"]
TYPES = [ColumnType.INTEGER, ColumnType.CATEGORY, ColumnType.DATE]


@st.composite
def catalogues(draw: st.DrawFn) -> Catalogue:
    """Draw up to eight tables with keys in any direction, some of them unique, some to what is not there."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=8, unique=True))
    tables = []
    for name in names:
        plain = draw(st.lists(st.sampled_from(COLUMNS), max_size=4, unique=True))
        columns = [FoundColumn("id", ColumnType.INTEGER, "BIGINT", nullable=False)]
        columns += [FoundColumn(column, draw(st.sampled_from(TYPES)), "x", nullable=True) for column in plain]
        keys, unique = [], []
        for number, parent in enumerate(draw(st.lists(st.sampled_from([*names, "elsewhere"]), max_size=3))):
            column = f"ref{number}"
            columns.append(FoundColumn(column, ColumnType.INTEGER, "BIGINT", nullable=draw(st.booleans())))
            keys.append(FoundKey((column,), parent, ("id",)))
            unique += [(column,)] if draw(st.booleans()) else []
        unreadable = len(names) > 1 and draw(st.integers(0, 9)) == 0
        primary = () if draw(st.integers(0, 5)) == 0 else ("id",)
        found = FoundTable(name, tuple(columns), primary, tuple(keys), tuple(unique), unreadable=unreadable)
        tables.append(found)
    return Catalogue("d", tuple(tables))


def published(text: str) -> set[str]:
    """Return the names that a draft publishes, by its list or table by table."""
    content: dict[str, Any] = yaml.safe_load(text)
    listed = content["privacy"].get("public") or []
    tables = {str(name) for name, table in (content["tables"] or {}).items() if table.get("public")}
    return ({str(name) for name in listed} | tables) - {"CHOOSE"}


@examples(40, 100)
@given(catalogues(), st.data())
def test_defaults_alone_never_publish_a_table(catalogue: Catalogue, data: st.DataObject) -> None:
    readable = [table.name for table in catalogue.tables if not table.unreadable]
    unit = data.draw(st.sampled_from([None, *readable]))
    folder = Path(mkdtemp())
    try:
        with (
            patch("privbench_core.draft.draft.read_catalogue", lambda *_: catalogue),
            patch("privbench_core.commands.init.show_plans", lambda *_, **__: None),
        ):
            drafts = [reflect("db", decisions=Decisions(unit=unit))]
            given = [] if unit is None else [f"--unit={unit}"]
            asked = folder / "asked.yaml"
            CliRunner().invoke(app, ["init", "db", "--interactive", "-o", str(asked), *given], input="\n" * 40)
            assert asked.exists() or unit is None, "without a unit there is nobody to ask for"
            drafts += [asked.read_text(encoding="utf-8")] if asked.exists() else []
            for draft in drafts:
                assert published(draft) == set()
                (folder / "spec.yaml").write_text(draft, encoding="utf-8")
                refused_if_undecided(catalogue, draft, folder / "spec.yaml")
    finally:
        shutil.rmtree(folder)


def refused_if_undecided(catalogue: Catalogue, draft: str, path: Path) -> None:
    """Check that a spec is refused for its public tables, where some tables have no key that leads to the unit."""
    unit = str(yaml.safe_load(draft)["privacy"]["unit"])
    if unit == "CHOOSE" or not Survey(propose_keys(catalogue), None).candidates(unit):
        return
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert any(line.startswith("privacy: public is not decided yet; ") for line in caught.value.problems)
