"""The shop: an example that a script makes up, whose spec is the draft of `init` and its owner's choices."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

import duckdb
import pytest

from privbench_core.commands.demo import find_example
from tests.helpers.drafts import call

EXAMPLE = find_example("shop")


def test_the_spec_of_the_shop_is_its_draft_and_choices(tmp_path: Path) -> None:
    runpy.run_path(str(EXAMPLE / "build.py"))["build"](tmp_path / "shop.duckdb", 50)
    assert call("init", tmp_path / "shop.duckdb", "-o", tmp_path / "draft.yaml").exit_code == 0
    draft, spec = (
        file.read_text(encoding="utf-8").splitlines() for file in (tmp_path / "draft.yaml", EXAMPLE / "spec.yaml")
    )
    text = "\n".join(spec)
    changed = [line for line in spec if line not in draft and not line.startswith(("#", "source:", "  unit:"))]
    assert all("# chosen" in line for line in changed), changed
    assert len(changed) < 30
    names = [re.match(r" +(- \{columns: [^:]*|\w+):", line) for line in draft]
    assert all(name is None or name[0] in text for name in names), "nothing of the draft is left out"
    (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
    shutil.copy(EXAMPLE / "queries.sql", tmp_path)
    assert call("plan", tmp_path / "spec.yaml").exit_code == 0


@pytest.mark.slow
def test_the_demo_of_the_shop_keeps_what_holds_in_every_row(tmp_path: Path) -> None:
    done = call("demo", "--example", "shop", "--dir", tmp_path / "shop")
    assert done.exit_code == 0, done.stderr
    assert "a script made them up" in done.stdout
    for table, broken in {
        "orders": "total <> goods + shipping OR shipped_at < paid_at",
        "order_line": "amount <> quantity * unit_price",
    }.items():
        file = tmp_path / "shop" / "bundle" / "data" / f"{table}.parquet"
        assert duckdb.sql(f"SELECT count(*) FROM '{file}' WHERE {broken}").fetchall() == [(0,)]
