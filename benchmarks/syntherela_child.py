"""What `multi_hop` starts in an environment with syntherela: nothing of this project can be imported here.

python syntherela_child.py FOLDER
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path

import pandas as pd
from syntherela.metadata import Metadata
from syntherela.metrics.multi_table.detection import AggregationDetection
from syntherela.metrics.multi_table.statistical import CardinalityShapeSimilarity
from syntherela.metrics.multi_table.trends import multi_table_trends
from syntherela.metrics.single_column.trends import ColumnShapesReport
from syntherela.metrics.single_table.detection import SingleTableDetection
from syntherela.metrics.single_table.trends import ColumnPairsReport
from xgboost import XGBClassifier

_CLASSIFIER = {"classifier_cls": XGBClassifier, "classifier_args": {"seed": 0}, "random_state": 42}  # syntherela's own

_SIDES = ("real", "synthetic")


def main(folder: Path) -> None:
    """Read metadata.json and the tables of ``real`` and ``synthetic``; write what each metric says of each part."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    metadata = Metadata.load_from_dict(json.loads((folder / "metadata.json").read_text()))
    real, made = ({name: _read(folder / side, metadata, name) for name in metadata.get_tables()} for side in _SIDES)
    found: dict[str, dict[str, float]] = {}
    for title, report, details, keys in (
        ("1-way", ColumnShapesReport(), "Column Shapes", ["Table", "Column"]),
        ("0-hop", ColumnPairsReport(), "Column Pair Trends", ["Table", "Column 1", "Column 2"]),
    ):
        report.generate(real, made, metadata.to_dict(), verbose=False)
        rows = report.get_details(details).dropna(subset=["Score"])
        found[title] = {" : ".join(row[key] for key in keys): row["Score"] for _, row in rows.iterrows()}
    trends = multi_table_trends(real, made, metadata, verbose=False)
    found |= {f"{hop}-hop": scores for hop, scores in trends["hop_relation"].items()}
    shapes = CardinalityShapeSimilarity().run(real, made, metadata)
    keys_of = [(each["parent_table_name"], each["child_table_name"]) for each in metadata.relationships]
    found["cardinality"] = {f"{top} - {low}": 1 - shapes[f"{top}_{low}"]["statistic"] for top, low in keys_of}
    single, joined = SingleTableDetection(**_CLASSIFIER), AggregationDetection(**_CLASSIFIER)
    found["C2ST"] = {}
    for name in metadata.get_tables():
        if single.is_applicable(metadata.to_dict()["tables"][name]):
            result = single.run(real[name], made[name], metadata=metadata.to_dict()["tables"][name])
            found["C2ST"][name] = result["accuracy"]
    aggregated = joined.run(real, made, metadata=metadata)
    found["C2ST-Agg"] = {name: result["accuracy"] for name, result in aggregated.items()}
    (folder / "found.json").write_text(json.dumps(found, default=float))


def _read(folder: Path, metadata: Metadata, name: str) -> pd.DataFrame:
    columns = metadata.tables[name].columns.items()
    texts = {column: str for column, said in columns if said["sdtype"] == "categorical"}
    return pd.read_csv(folder / f"{name}.csv", dtype=texts, keep_default_na=False, na_values=[""])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
