"""What `peers` starts in dpmm's own environment: nothing of this project can be imported here.

python dpmm_child.py METHOD FOLDER
"""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd

_PIPELINES = {"privbayes": "priv_bayes:PrivBayesPipeline", "mst": "mst:MSTPipeline", "aim": "aim:AIMPipeline"}


def main(method: str, folder: Path) -> None:
    """Read the codes, fit, sample as many rows as there were, write the result."""
    with np.load(folder / "in.npz") as given:
        codes, sizes = given["codes"], given["sizes"].tolist()
    parameters = json.loads((folder / "parameters.json").read_text())
    module, name = _PIPELINES[method].split(":")
    pipeline_class = getattr(import_module(f"dpmm.pipelines.{module}"), name)
    start = perf_counter()
    pipeline = pipeline_class(
        epsilon=parameters["epsilon"], delta=parameters["delta"], n_jobs=1, disable_processing=True
    )
    frame = pd.DataFrame(codes, columns=[f"c{i}" for i in range(len(sizes))])
    pipeline.fit(frame, domain=dict(zip(frame.columns, sizes)), random_state=parameters["seed"])  # noqa: B905
    learned = perf_counter()
    synthetic = pipeline.generate(n_records=len(frame), random_state=parameters["seed"])
    sampled = perf_counter()
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    np.savez(
        folder / "out.npz",
        codes=synthetic[frame.columns].to_numpy(np.int64),
        seconds_learn=learned - start,
        seconds_sample=sampled - learned,
        peak_mb=int(peak.group(1)) / 1024 if peak else float("nan"),
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
