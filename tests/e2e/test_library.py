"""docs/library.md and docs/synthesizers.md, run unchanged next to the example's spec and a part of its rows."""

from __future__ import annotations

import re
from contextlib import closing
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import privbench_core as privbench
from privbench_core.backends.folder import FolderSource
from privbench_core.engines.memory import PrivateDatabase
from privbench_core.evaluation import read_bundle_and_source
from privbench_core.evaluation.comparison import compare
from privbench_core.evaluation.marginals import BRIEF
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.noise import OpenDPNoise
from privbench_core.privacy.session import open_session
from privbench_core.synthesizers import contract
from privbench_core.synthesizers.relational import tables
from tests.helpers.example import part_of_the_example
from tests.helpers.noise import seed_noise

DOCUMENTS = [Path(__file__).parents[2] / "docs" / name for name in ("library.md", "synthesizers.md")]
TEXT = "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
MODULE, METHOD = "independent", "chained"
HOUSEHOLDS = 8_000


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def beside_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: list[str]) -> Path:
    """The working directory: the example, and the document's synthesizer as an installed package."""
    part_of_the_example(tmp_path, HOUSEHOLDS)
    seed_noise(monkeypatch)  # else the joint of the method is three standard deviations within its bound
    for name, found in ((MODULE, contract), (METHOD, tables)):
        [module] = [block for block in blocks if block.startswith(f"# {name}.py\n")]
        (tmp_path / f"{name}.py").write_text(module, encoding="utf-8")
        [declared] = re.findall(rf"^{name} = \"(.*)\"$", TEXT, re.MULTILINE)
        points = EntryPoints([*found.installed(found.GROUP), EntryPoint(name, declared, found.GROUP)])
        monkeypatch.setattr(found, "installed", lambda _, points=points: points)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_documents_run(beside_the_example: Path, blocks: list[str]) -> None:
    names: dict[str, Any] = {"__name__": "document"}
    for block in blocks:
        exec(compile(block, "documents", "exec"), names)
    assert 0.1 <= names["account"].balance.spent <= 0.8
    assert names["result"].paid > 0
    assert repr(names["evaluation"]).startswith("<Evaluation of bundle against households, with queries: ")
    assert len(names["persons"]) == pytest.approx(pq.read_metadata("person.parquet").num_rows, rel=0.05)
    assert names["loaded"].rows["person"] == len(names["persons"])
    assert (beside_the_example / "report" / "report.html").exists()
    assert names["certificate"].figures["answered"] == 1
    assert {"household", "person"} <= {
        key.path[2] for key in names["defs"].resolve_all_asset_keys() if len(key.path) > 2
    }
    rows = _as_a_step(beside_the_example, names)
    assert rows == pytest.approx(HOUSEHOLDS, rel=0.02)
    _check_the_synthesizer(beside_the_example, names)
    _check_the_method(beside_the_example, names)


def _check_the_method(folder: Path, names: dict[str, Any]) -> None:
    """Its tables are linked: joined pairs are nearer to the source than those of the source with its links shuffled."""
    assert names["linked"].plan.synthesizer == "relational"
    found = compare(read_bundle_and_source(names["spec"], folder / "linked").pair, BRIEF)
    join = found.keys["person.household_id"]
    joint, shuffled = join["joint"], join["shuffled"]
    assert joint is not None
    assert shuffled is not None
    assert joint < 0.9 * shuffled


def _check_the_synthesizer(folder: Path, names: dict[str, Any]) -> None:
    """It keeps columns and joins, and no dependence within a table; and no release is paid for twice."""
    spec = names["spec"]
    again = privbench.run(spec, epsilon=3.2, synthesizer=MODULE, out=folder / MODULE, seed=1)
    assert again.paid == 0
    found = compare(read_bundle_and_source(spec, folder / MODULE).pair, BRIEF)
    one_way = {name: found.tables[name].tvd(1) for name in ("household", "person")}
    assert max(one_way.values()) < 0.06, one_way
    join = found.keys["person.household_id"]
    joint, shuffled = join["joint"], join["shuffled"]
    assert joint is not None
    assert shuffled is not None
    assert joint < shuffled
    household = found.tables["household"]
    assert household.tvd(2) == pytest.approx(household["shuffled"], rel=0.3)


@pytest.mark.usefixtures("beside_the_example")
@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_the_synthesizer_plans_within_both_kinds_of_budget(delta: float) -> None:
    spec = privbench.load_spec("spec.yaml")
    plan = privbench.plan(spec, epsilon=0.8, delta=delta, synthesizer=MODULE)
    total = plan.budget.total()
    assert sum(step.price.amount for step in plan.steps) == pytest.approx(total.amount)
    assert {step.price.measure for step in plan.steps} == {total.measure}
    with pytest.raises(privbench.SpecError, match="gamma: unknown"):
        contract.load_synthesizer(MODULE).plan(spec.schema, plan.budget, {"gamma": 0.5})


def _as_a_step(folder: Path, names: dict[str, Any]) -> float:
    schema, price = names["spec"].schema, privbench.Price(privbench.Measure.GDP, 0.1)
    tables = {table.name: FolderSource(folder).read(table) for table in schema.tables}
    database = PrivateDatabase(schema, tables, bytes(16))
    with closing(Ledger(":memory:", schema.name, "household", privbench.Budget(10, 1e-9))) as ledger:
        where = {"release": "rows", "step": "rows", "run": "document"}
        session, _ = open_session(database, ledger, OpenDPNoise(), **where, price=price)
        return float(names["count_households"](privbench.StepContext({}, session, {}, 0)).data["rows"])
