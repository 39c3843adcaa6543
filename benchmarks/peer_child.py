"""What `peers` starts in a peer's environment: the standard library, numpy, and the packages of the peer are there.

python -m benchmarks.peer_child METHOD FOLDER

``in.npz`` and ``out.npz`` hold one table as ``codes`` and ``sizes``, or the columns of several as ``TABLE.COLUMN``;
``parameters.json`` has what is declared about these. ``out.npz`` says which versions made it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

Arrays = Mapping[str, np.ndarray]
Sample = Callable[[], dict[str, np.ndarray]]
_DPMM = {"privbayes": "priv_bayes:PrivBayesPipeline", "mst": "mst:MSTPipeline", "aim": "aim:AIMPipeline"}
_FEW = 32  # values of a range that dpsynth is given as a list: as many as it makes bins of a wider one


def _dpmm(method: str, given: Arrays, parameters: Mapping[str, Any]) -> Sample:
    import pandas as pd

    module, name = _DPMM[method].split(":")
    made = getattr(import_module(f"dpmm.pipelines.{module}"), name)
    pipeline = made(epsilon=parameters["epsilon"], delta=parameters["delta"], n_jobs=1, disable_processing=True)
    frame = pd.DataFrame(given["codes"], columns=[f"c{i}" for i in range(len(given["sizes"]))])
    domain = dict(zip(frame.columns, given["sizes"].tolist()))  # noqa: B905 - Python 3.9 may run this
    pipeline.fit(frame, domain=domain, random_state=parameters["seed"])

    def sample() -> dict[str, np.ndarray]:
        rows = pipeline.generate(n_records=len(frame), random_state=parameters["seed"])
        return {"codes": rows[frame.columns].to_numpy(np.int64)}

    return sample


def _dpsynth_mechanism(config: Any, parameters: Mapping[str, Any]) -> Any:
    """Return it with the zCDP of its budget: its own search for more needs an unpublished dp-accounting."""
    from dpsynth.discrete_mechanisms import accounting

    return config.configure(zcdp_rho=accounting.zcdp_rho(parameters["epsilon"], parameters["delta"]))


def _dpsynth_codes(method: str, given: Arrays, parameters: Mapping[str, Any]) -> Sample:
    import mbi
    from dpsynth import discrete_mechanisms

    names = [f"c{i}" for i in range(len(given["sizes"]))]
    data = mbi.Dataset(dict(zip(names, given["codes"].T)), mbi.Domain(names, given["sizes"].tolist()))  # noqa: B905
    config = discrete_mechanisms.DiscreteConfig(getattr(discrete_mechanisms, f"{method}Config")())
    made = _dpsynth_mechanism(config, parameters)(np.random.default_rng(parameters["seed"]), data)
    columns = made.synthetic_data.to_dict()
    return lambda: {"codes": np.stack([np.asarray(columns[name], np.int64) for name in names], axis=1)}


def _dpsynth_tables(one_way: bool, given: Arrays, parameters: Mapping[str, Any]) -> Sample:
    """Fit with the settings of dpsynth's own example of households and persons, whose MST measures no single column."""
    import jax
    from dpsynth import discrete_mechanisms, domain, relational

    jax.config.update("jax_enable_x64", True)  # as mbi advises for more than 100,000 rows
    jax.config.update("jax_enable_compilation_cache", False)

    def attribute(values: list[int] | None, low: int, high: int) -> Any:
        listed = list(range(low, high + 1)) if values is None and high - low < _FEW else values
        if listed is not None:
            return domain.CategoricalAttribute(listed)
        return domain.NumericalAttribute(low, high, dtype="int", interval_handling="sample")

    mechanism = discrete_mechanisms.MSTConfig(pgm_iters=100)
    config = relational.MultiTableConfig(
        domains={
            name: {column: attribute(*declared) for column, declared in table["columns"].items()}
            for name, table in parameters["tables"].items()
        },
        foreign_keys=[
            relational.ForeignKeyRelation(parent, parameters["tables"][parent]["key"], child, column, most)
            for child, column, parent, most in parameters["keys"]
        ],
        discrete_mechanism=discrete_mechanisms.DiscreteConfig(mechanism) if one_way else mechanism,
        num_permutation_slots=3,
        exploration_strategy="size_sliced",
    )
    made = _dpsynth_mechanism(config, parameters)(np.random.default_rng(parameters["seed"]), _frames(given))
    return lambda: _arrays(made.synthetic_tables, parameters)


def _sdv_tables(given: Arrays, parameters: Mapping[str, Any]) -> Sample:
    from sdv.metadata import Metadata
    from sdv.multi_table import HMASynthesizer

    metadata = Metadata()
    for name, table in parameters["tables"].items():
        metadata.add_table(name)
        for column, (values, *_) in table["columns"].items():
            metadata.add_column(column, name, sdtype="numerical" if values is None else "categorical")
        metadata.add_column(table["key"], name, sdtype="id")
        metadata.set_primary_key(table["key"], name)
    for child, column, parent, _ in parameters["keys"]:
        metadata.add_column(column, child, sdtype="id")
        metadata.add_relationship(parent, child, parameters["tables"][parent]["key"], column)
    synthesizer = HMASynthesizer(metadata, verbose=False)
    synthesizer.fit(_frames(given))
    return lambda: _arrays(synthesizer.sample_scale(1.0), parameters)


def _frames(given: Arrays) -> dict[str, Any]:
    """Return the tables as frames, in the order of their first columns."""
    import pandas as pd

    tables: dict[str, dict[str, np.ndarray]] = {}
    for name, values in given.items():
        table, _, column = name.partition(".")
        tables.setdefault(table, {})[column] = values
    return {name: pd.DataFrame(columns) for name, columns in tables.items()}


def _arrays(frames: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the declared columns, and keys as numbers of rows, whatever the peer wrote there."""
    import pandas as pd

    tables, found = parameters["tables"], {}
    keys = {
        name: pd.Index(frames[name][table["key"]]) if table["key"] in frames[name] else pd.RangeIndex(len(frames[name]))
        for name, table in tables.items()
    }
    for name, table in tables.items():
        found[f"{name}.{table['key']}"] = np.arange(len(frames[name]))
        found |= {f"{name}.{column}": frames[name][column].to_numpy().astype(np.int64) for column in table["columns"]}
    for child, column, parent, _ in parameters["keys"]:
        found[f"{child}.{column}"] = keys[parent].get_indexer(frames[child][column]).astype(np.int64)
    return found


_METHODS: dict[str, tuple[tuple[str, ...], Callable[[Arrays, Mapping[str, Any]], Sample]]] = {
    **{name: (("dpmm", "opendp"), partial(_dpmm, name)) for name in _DPMM},
    **{
        f"dpsynth {name}": (("dpsynth", "mbi", "jax"), partial(_dpsynth_codes, kind))
        for name, kind in (("AIM", "AIMGDP"), ("MST", "MST"), ("SWIFT", "SWIFT"))
    },
    "dpsynth, its example": (("dpsynth", "mbi", "jax"), partial(_dpsynth_tables, False)),
    "dpsynth, with one-way marginals": (("dpsynth", "mbi", "jax"), partial(_dpsynth_tables, True)),
    "SDV HMA": (("sdv", "torch"), _sdv_tables),
}


def _version(name: str) -> str:
    """Return what a package says of itself: dpsynth is in no registry."""
    own = getattr(import_module(name), "__version__", None) if name == "dpsynth" else None
    return own or version(name)


def main(method: str, folder: Path) -> None:
    """Read what is given, fit, sample, and write the result."""
    with np.load(folder / "in.npz") as stored:
        given = dict(stored)
    packages, fit = _METHODS[method]
    start = perf_counter()
    sample = fit(given, json.loads((folder / "parameters.json").read_text()))
    learned = perf_counter()
    made = sample()
    sampled = perf_counter()
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    np.savez(
        folder / "out.npz",
        **made,
        packages=", ".join(f"{name} {_version(name)}" for name in packages),
        seconds_learn=learned - start,
        seconds_sample=sampled - learned,
        peak_mb=int(peak.group(1)) / 1024 if peak else float("nan"),
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
