"""Where everything that belongs to one database lies. Every path names the database, so specs may share a folder.

<state>/ledger.sqlite, secret.key           shared: the ledger keeps an account per database
<state>/spending/                           how many reservations the ledger had, per database
<state>/<database>/DATABASE                 whose folder it is
<state>/<database>/RESERVATIONS             how many reservations the ledger had, once more
<state>/<database>/releases/                what the steps released
<state>/<database>/locks/                   of steps that are being made, and of runs that hold what they have to buy
<state>/<database>/record.sqlite            what each step was made from, and the source when it was last looked at
<state>/<database>/bundles/, reports/       per ε; a cohort has its own
<state>/<database>/errors/                  details that only the owner may read
"""

from __future__ import annotations

from pathlib import Path

from privbench_core.errors import ReleaseError
from privbench_core.files import file_name, write_once
from privbench_core.spec.model import Spec

_OWNER = "DATABASE"


def epsilon_name(epsilon: float) -> str:
    """Return what a file, a partition or a run calls an ε: short, and the same for equal numbers.

    >>> epsilon_name(0.8), epsilon_name(2.0)
    ('0.8', '2')
    """
    return f"{epsilon:.12g}"


def database_folder(spec: Spec) -> Path:
    """Return the folder of the spec's database."""
    return spec.state / file_name(spec.schema.name)


def bundle_folder(spec: Spec, epsilon: str) -> Path:
    """Return the folder of the bundle at one ε."""
    return database_folder(spec) / "bundles" / spec.cohort / epsilon


def report_folder(spec: Spec, epsilon: str) -> Path:
    """Return the folder of the internal report on that bundle: beside the bundles, never inside of one."""
    return database_folder(spec) / "reports" / spec.cohort / epsilon


def errors_folder(spec: Spec) -> Path:
    """Return the folder of error details that only the owner may read."""
    return database_folder(spec) / "errors"


def lock_file(spec: Spec, key: str) -> Path:
    """Return the lock of who is at work on ``key``."""
    return database_folder(spec) / "locks" / key


def record_file(spec: Spec) -> Path:
    """Return the file that says what each step was made from, see `record`."""
    return database_folder(spec) / "record.sqlite"


def claim_folder(spec: Spec) -> Path:
    """Make the database's folder, readable by its owner only, or check that it is this database's.

    Raises:
        ReleaseError: It belongs to another database, or holds something that no database left there.
    """
    folder, name = database_folder(spec), spec.schema.name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    marker = folder / _OWNER
    if not marker.exists():
        others = [path for path in folder.iterdir() if path.name not in {_OWNER, "errors"} and path.suffix != ".tmp"]
        if others and not marker.exists():  # another process may have claimed the folder meanwhile
            raise _refusal(folder, name, "does not say whose it is")
        write_once(marker, name.encode())
    try:
        owner = marker.read_text(encoding="utf-8")
    except ValueError:
        owner = "an unreadable name"
    if owner != name:
        raise _refusal(folder, name, f"belongs to the database {owner}")
    return folder


def _refusal(folder: Path, name: str, found: str) -> ReleaseError:
    return ReleaseError(
        f"{folder}: this folder {found}, so nothing of {name} is written there. Give the spec of {name} another state"
        " folder (state:), or move this one away"
    )
