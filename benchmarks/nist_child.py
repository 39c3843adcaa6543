"""What `nist` starts in SDNist's own environment: nothing of this project can be imported here.

python nist_child.py FOLDER: scores every CSV file there as SDNist's report does, and sub-samples of the excerpt.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from sdnist.load import TestDatasetName
from sdnist.metrics.kmarginal import KMarginal
from sdnist.report.dataset import Dataset, get_stable_features
from sdnist.report.score.utility.interfaces.kmarginal.subsample_score import kmarginal_subsamples
from sdnist.utils import SimpleLogger


def main(folder: Path) -> None:
    """Read ``parameters.json`` (data: the folder above ACSDataExcerpts; excerpt), write ``scores.json``."""
    given = json.loads((folder / "parameters.json").read_text())
    scores, refused = [], []
    for file in sorted(folder.glob("*.csv")):
        dataset = Dataset(file, SimpleLogger(), TestDatasetName[given["excerpt"]], Path(given["data"]), False)
        groups = get_stable_features(dataset.config, dataset.c_target_data.columns.tolist())
        group = groups[0] if groups else None
        scores.append(KMarginal(dataset.d_target_data, dataset.d_synthetic_data, group).compute_score())
        refused.append(list(dataset.validation_log))
    np.random.seed(0)  # noqa: NPY002 - SDNist draws its samples by the global generator
    samples = list(kmarginal_subsamples(dataset.d_target_data, group).items())
    found = {"tables": scores, "refused": refused, "samples": samples}
    (folder / "scores.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
