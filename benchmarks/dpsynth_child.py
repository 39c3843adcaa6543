"""What `peers` starts in an environment with dpsynth: nothing of this project can be imported here.

python dpsynth_child.py METHOD FOLDER
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from time import perf_counter

import mbi
import numpy as np
from dpsynth.discrete_mechanisms import AIMGDPConfig, DiscreteConfig, MSTConfig, SWIFTConfig, accounting

_MECHANISMS = {"aim": AIMGDPConfig, "mst": MSTConfig, "swift": SWIFTConfig}


def main(method: str, folder: Path) -> None:
    """Read the codes, fit, sample as many rows as it counts, write the result."""
    with np.load(folder / "in.npz") as given:
        codes, sizes = given["codes"], given["sizes"].tolist()
    parameters = json.loads((folder / "parameters.json").read_text())
    start = perf_counter()
    names = [f"c{i}" for i in range(len(sizes))]
    data = mbi.Dataset({name: codes[:, i] for i, name in enumerate(names)}, mbi.Domain(names, sizes))
    rho = accounting.zcdp_rho(parameters["epsilon"], parameters["delta"])
    mechanism = DiscreteConfig(_MECHANISMS[method]()).configure(zcdp_rho=rho)
    synthetic = mechanism(np.random.default_rng(parameters["seed"]), data).synthetic_data
    columns = synthetic.to_dict()
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    np.savez(
        folder / "out.npz",
        codes=np.stack([np.asarray(columns[name], np.int64) for name in names], axis=1),
        seconds_learn=perf_counter() - start,
        seconds_sample=0.0,
        peak_mb=int(peak.group(1)) / 1024 if peak else float("nan"),
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
