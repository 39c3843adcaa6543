"""What `attacks` starts in the peers' own environment: nothing of this project can be imported here.

python anonymeter_child.py FOLDER
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from anonymeter.evaluators import InferenceEvaluator, LinkabilityEvaluator, SinglingOutEvaluator


def main(folder: Path) -> None:
    """Read codes of members, others and synthetic rows; write the rates of success of anonymeter's attacks."""
    logging.disable(logging.WARNING)
    np.random.seed(0)  # noqa: NPY002 - what anonymeter draws from
    parameters = json.loads((folder / "parameters.json").read_text())
    with np.load(folder / "in.npz") as given:
        frames = {name: _frame(given[name], parameters["ordered"]) for name in ("members", "others", "synthetic")}
    given_rows = {"ori": frames["members"], "control": frames["others"], "syn": frames["synthetic"]}
    tried = min(parameters["targets"], len(frames["members"]), len(frames["others"]))
    columns = list(frames["members"].columns)
    half = len(columns) // 2
    evaluators = [
        ("singling out", SinglingOutEvaluator(n_attacks=parameters["targets"], max_attempts=5000, **given_rows)),
        ("linkability", LinkabilityEvaluator(n_attacks=tried, aux_cols=(columns[:half], columns[half:]), **given_rows)),
    ]
    for secret in columns:
        known = [name for name in columns if name != secret]
        evaluators.append(
            (
                "inference",
                InferenceEvaluator(n_attacks=tried, aux_cols=known, secret=secret, regression=False, **given_rows),
            )
        )
    found: dict[str, list[list[float]]] = {}
    for name, evaluator in evaluators:
        results = (evaluator.evaluate() if name == "singling out" else evaluator.evaluate(n_jobs=1)).results()
        shares = results.attack_rate.value, results.control_rate.value
        found.setdefault(name, []).append(list(shares))
    (folder / "answer.json").write_text(json.dumps(found))


def _frame(codes: np.ndarray, ordered: list[bool]) -> pd.DataFrame:
    columns = {f"c{i}": codes[:, i] for i in range(codes.shape[1])}
    return pd.DataFrame({n: c if o else c.astype(str) for (n, c), o in zip(columns.items(), ordered)})  # noqa: B905


if __name__ == "__main__":
    main(Path(sys.argv[1]))
