"""What a run works with: releases, the secret that keys hashes, and the ledger unless it is in PostgreSQL.

All of it is in the state folder: private, never published. Machines that work on one database share the folder; the
ledger makes sure of that. Every path names the database, so specs may share a folder.

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

import secrets
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext, suppress
from hashlib import blake2b
from pathlib import Path

from privbench_core.errors import LedgerError, ReleaseError
from privbench_core.files import exclusive, file_name, is_locked, write_durably, write_once
from privbench_core.privacy.budget import Budget
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.privacy.neighbour_relation import neighbour_relation
from privbench_core.spec.location import expand
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.artifact import PartFiles, digest_of

_OWNER = "DATABASE"
_SEEN = "RESERVATIONS"  # of the ledger, as far as this folder has seen them


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
            raise _refusal(folder, name, "does not say which database it belongs to")
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


class Workspace:
    """Ledger, releases and secret of one spec.

    Args:
        spec: The spec whose state folder this is; made on first use, readable by its owner only.
        new_state: Let the folder take the place of one that was lost, whose releases will be paid for again; or the
            ledger that of a lost one, whose entries no longer count.

    Raises:
        LedgerError: The ledger cannot be used, or has lost what this folder has seen in it.
        ReleaseError: The ledger belongs to another state folder, or the folder to another database.
    """

    def __init__(self, spec: Spec, *, new_state: bool = False) -> None:
        self.spec = spec
        spec.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        spec.state.chmod(0o700)
        self.folder = claim_folder(spec)
        self.secret = _secret(spec.state / "secret.key")
        self.ledger = open_ledger(spec)
        try:
            self._require_all_known(anew=new_state)
            self.ledger.claim(self.keyed("state folder"), replace=new_state)
        except BaseException:
            self.ledger.close()
            raise
        self.releases = ReleaseStore(self.folder / "releases")

    def keyed(self, text: str) -> str:
        """Return a hash of ``text`` that says nothing without the secret (for fingerprints in logs)."""
        return blake2b(text.encode(), key=self.secret, digest_size=16).hexdigest()

    def remember_spending(self) -> None:
        """Note how many reservations the ledger holds, so that another one, or an old copy, is not taken for it."""
        if not self.ledger.durable:
            return  # a rehearsal: nothing of it is spent
        number = self.ledger.count()
        for note in self._notes:
            with suppress(OSError):  # a full disk: the note is then an older one, which says less and nothing wrong
                write_durably(note, str(number).encode())

    @property
    def _notes(self) -> tuple[Path, Path]:
        """One with the secret and one with the releases: a deletion of one of the two leaves the other note."""
        with_secret = self.spec.state / "spending" / self.keyed(f"ledger of {self.spec.schema.name}")
        return with_secret, self.folder / _SEEN

    def _require_all_known(self, *, anew: bool) -> None:
        """Refuse a ledger with fewer reservations than this folder has seen: what was spent would be forgotten."""
        if anew:
            for note in self._notes:
                note.unlink(missing_ok=True)
        if anew or not self.ledger.durable:
            return
        seen, found = max(map(_number_in, self._notes)), self.ledger.count()
        if found < seen:
            message = (
                f"the ledger of {self.spec.schema.name} holds {found} reservations, but this state folder has seen"
                f" {seen}: it is another ledger (was privacy.ledger changed?), or an old copy. Restore the right one."
                " If it is lost, go on without its record of spending: privbench ledger SPEC --new-state"
            )
            raise LedgerError(message)
        if not self.ledger.bound() and any((self.folder / "releases").glob("*/*.bin")):
            message = (
                f"the ledger of {self.spec.schema.name} is empty, but this state folder holds releases that another"
                " ledger paid for: that ledger was deleted or replaced. Restore it. If it is lost, go on without its"
                " record of spending: privbench ledger SPEC --new-state"
            )
            raise LedgerError(message)

    def at_work(self, mark: str, what: str) -> AbstractContextManager[None]:
        """Be known as at work on the hold with ``mark``, until the process or the block ends."""
        return self.exclusive(_lock_of_hold(mark), what)

    def exclusive(self, key: str, what: str) -> AbstractContextManager[None]:
        """Wait until no other process is at work on ``key``, ``what`` is what messages call it."""
        return exclusive(lock_file(self.spec, key), what)

    def is_locked(self, key: str) -> bool:
        """Return whether another process is at work on ``key``."""
        return is_locked(lock_file(self.spec, key))

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()


def open_ledger(spec: Spec) -> Ledger:
    """Return the ledger of a spec: in the state folder, or where ``privacy.ledger`` says."""
    place = expand(spec.ledger, "privacy.ledger") if spec.ledger else spec.state / "ledger.sqlite"
    lifetime = Budget(spec.lifetime_epsilon, spec.lifetime_delta)
    return Ledger(
        place,
        spec.schema.name,
        spec.schema.unit_in_words,
        lifetime,
        spec.refresh,
        relation=neighbour_relation(spec.schema),
        account=spec.cohort,
        alive=lambda mark: _is_alive(lock_file(spec, _lock_of_hold(mark))),
    )


class Scratch(Workspace):
    """A workspace in memory for a rehearsal: it keeps nothing, and its ledger ends with it."""

    def __init__(self, spec: Spec, budget: Budget) -> None:
        self.spec = spec
        self.secret = secrets.token_bytes(16)
        self.ledger = Ledger(":memory:", spec.schema.name, spec.schema.unit_in_words, budget)
        self.releases = ReleaseStore(None)

    def exclusive(self, key: str, what: str) -> AbstractContextManager[None]:
        """Nobody else can be at work here."""
        return nullcontext()

    def is_locked(self, key: str) -> bool:
        """Nobody else can be at work here."""
        return False


class ReleaseStore:
    """Files of released artifacts by key, checked against the digest that the ledger or a caller remembers.

    Args:
        folder: Of one database; None keeps nothing, for a rehearsal, which runs every step once.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def put(self, key: str, stored: bytes) -> str:
        """Store an artifact durably (written beside, synced, renamed) and return its digest."""
        if self._folder is not None:
            try:
                write_durably(self.path(key), stored)
            except OSError as error:
                raise ReleaseError(
                    f"the result of a step could not be stored: {error.strerror}. Make room, then run again"
                ) from error
        return digest_of(stored)

    def get(self, key: str, digests: Collection[str] | None = None) -> bytes | None:
        """Return the stored bytes, None if there are none.

        Raises:
            ReleaseError: They match none of ``digests``: the file was damaged after it was released.
        """
        if self._folder is None or not (path := self.path(key)).exists():
            return None
        stored = path.read_bytes()
        if digests is not None and digest_of(stored) not in digests:
            message = (
                f"the stored release {key[:12]} is damaged (checksum). Restore {path.name} from a backup, or delete it:"
                " then the step runs again and is paid for again."
            )
            raise ReleaseError(message)
        return stored

    def parts(self, key: str) -> PartFiles:
        """Return where an artifact keeps rows that are made range by range: beside its file, or only while needed."""
        return PartFiles.temporary() if self._folder is None else PartFiles(self.path(key).with_suffix(".parts"))

    def path(self, key: str) -> Path:
        """Return where the artifact of ``key`` lies."""
        assert self._folder is not None  # noqa: S101 - nothing has a place where nothing is kept
        return self._folder / key[:2] / f"{key}.bin"


def _lock_of_hold(mark: str) -> str:
    return f"hold-{mark}"


def _is_alive(lock: Path) -> bool:
    """Return whether the process that made a hold is at work; the file that a killed one left is removed."""
    if is_locked(lock):
        return True
    with suppress(OSError):
        lock.unlink(missing_ok=True)
    return False


def _number_in(note: Path) -> int:
    """Return the number in a note; 0 if there is none, or half of one after a power cut: then nothing is known."""
    try:
        return int(note.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _secret(path: Path) -> bytes:
    """16 random bytes, made once."""
    if not path.exists():
        write_once(path, secrets.token_bytes(16))
    return path.read_bytes()
