"""Where the benchmark data lies, and Adult as the integer codes that all methods are given."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from privbench_core.errors import SourceError
from privbench_core.workload import Query

Codes = NDArray[np.integer]


def data_folder(option: Path | None = None) -> Path:
    """The data folder: ``option``, else $PRIVBENCH_DATA, else ``shared/data`` beside the project.

    Raises:
        SourceError: There is no such folder.
    """
    project = Path(__file__).resolve().parents[1]
    folder = option or Path(os.environ.get("PRIVBENCH_DATA", project.parent / "shared" / "data"))
    if not folder.is_dir():
        raise SourceError(f"no benchmark data in {folder}; pass --data DIR or set PRIVBENCH_DATA")
    return folder


def read_table(folder: Path, name: str) -> pa.Table:
    """A Parquet file of the data folder; SourceError if it is missing."""
    path = folder / f"{name}.parquet"
    if not path.is_file():
        raise SourceError(f"{path} is missing; benchmarks/README.md says where the data comes from")
    return pq.read_table(path)


@dataclass(frozen=True)
class Bins:
    """A numeric attribute in equal bins of whole numbers.

    Attributes:
        low: Smallest value of the declared domain.
        width: Whole numbers per bin.
        size: Number of bins.
    """

    low: int
    width: int
    size: int
    ordered: bool = True

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Bins of ``values``, clamped into the domain."""
        bins: Codes = np.clip((values.to_numpy() - self.low) // self.width, 0, self.size - 1)
        return bins

    def decode(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        """Whole numbers, uniform inside each bin."""
        return pa.array(self.low + codes * self.width + rng.integers(0, self.width, len(codes)))

    def bin_of(self, literal: str) -> str:
        """The bin of a query's literal, as text."""
        return str(int(np.clip((int(literal) - self.low) // self.width, 0, self.size - 1)))

    def bins(self, codes: Codes) -> pa.Array:
        """Bins as they compare with `bin_of`."""
        return pa.array(codes)


@dataclass(frozen=True)
class Listed:
    """A categorical attribute with the codebook's list of values, ascending by bytes."""

    values: tuple[str, ...]
    ordered: bool = False

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.values)

    def encode(self, values: pa.ChunkedArray) -> Codes:
        """Positions in the list; SourceError for a value that is not in it."""
        found = pc.index_in(values.cast(pa.string()), pa.array(self.values))
        if found.null_count:
            raise SourceError(f"Adult holds a value outside of the codebook's list {', '.join(self.values[:3])}, ...")
        codes: Codes = found.to_numpy().astype(np.int64)
        return codes

    def decode(self, codes: Codes, rng: np.random.Generator) -> pa.Array:
        """The values (nothing is drawn)."""
        del rng
        return pa.array(self.values).take(pa.array(codes))

    def bin_of(self, literal: str) -> str:
        """A value is its own bin."""
        return literal

    def bins(self, codes: Codes) -> pa.Array:
        """Values as they compare with `bin_of`."""
        return pa.array(self.values).take(pa.array(codes))


def _listed(values: str) -> Listed:
    return Listed(tuple(sorted(values.split())))


# Declared from the data set's public description (adult.names), not from the rows: ages and hours as they are, the
# three wide attributes in 100 equal bins, categories as listed there. "Never-worked" does not occur in complete rows.
ADULT: dict[str, Bins | Listed] = {
    "age": Bins(17, 1, 74),
    "workclass": _listed(
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked"
    ),
    "fnlwgt": Bins(0, 15_000, 100),
    "education": _listed(
        "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th"
        " Doctorate 5th-6th Preschool"
    ),
    "education_num": Bins(1, 1, 16),
    "marital_status": _listed(
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"
    ),
    "occupation": _listed(
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners"
        " Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces"
    ),
    "relationship": _listed("Wife Own-child Husband Not-in-family Other-relative Unmarried"),
    "race": _listed("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
    "sex": _listed("Female Male"),
    "capital_gain": Bins(0, 1_000, 100),
    "capital_loss": Bins(0, 44, 100),
    "hours_per_week": Bins(1, 1, 99),
    "native_country": _listed(
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece South"
        " China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France"
        " Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand"
        " Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands"
    ),
    "income": _listed("<=50K >50K"),
}


@dataclass(frozen=True)
class CodedAdult:
    """Adult without incomplete rows (45,222 x 15), as codes."""

    rows: pa.Table

    @classmethod
    def load(cls, folder: Path) -> CodedAdult:
        """Read ``adult/adult_clean.parquet`` of the data folder."""
        return cls(read_table(folder / "adult", "adult_clean").select(list(ADULT)))

    @property
    def sizes(self) -> list[int]:
        """Domain size per column."""
        return [domain.size for domain in ADULT.values()]

    @property
    def ordered(self) -> list[bool]:
        """Whether neighbouring codes are neighbouring values, per column."""
        return [domain.ordered for domain in ADULT.values()]

    @cached_property
    def codes(self) -> Codes:
        """Codes of shape (rows, 15)."""
        return np.stack([domain.encode(self.rows[name]) for name, domain in ADULT.items()], axis=1)

    def decode(self, codes: Codes, rng: np.random.Generator) -> pa.Table:
        """Values for codes, uniform inside the bins."""
        columns = zip(ADULT.items(), codes.T, strict=True)
        return pa.table({name: domain.decode(column, rng) for (name, domain), column in columns})

    def in_bins(self, codes: Codes) -> pa.Table:
        """Codes as a table that queries can be put to after `query_in_bins`."""
        return pa.table({name: d.bins(column) for (name, d), column in zip(ADULT.items(), codes.T, strict=True)})

    def query_in_bins(self, query: Query) -> Query:
        """The query at the resolution of the domain: each literal stands for its whole bin."""
        return tuple(
            type(condition)(condition.column, condition.operator, ADULT[condition.column].bin_of(condition.value))
            for condition in query
        )
