"""Where a source is: a path, or a URL whose secrets stay out of files and messages."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from privbench_core.errors import SourceError

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_LOGIN = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*@")
# Bare schemes of PostgreSQL leave the driver to SQLAlchemy's default of the day; we say which one we install.
_POSTGRES = frozenset({"postgres", "postgresql"})
_CONNECT_SECONDS = 15


def is_url(source: str) -> bool:
    """Return whether ``source`` is a database URL rather than a path."""
    return bool(_URL.match(source))


def resolve(source: str, folder: Path) -> str:
    """A relative path made absolute from ``folder``; URLs and text with ``${VARIABLE}`` are kept for `expand`."""
    if is_url(source) or _VARIABLE.search(source):
        return source
    return str((folder / home(source)).resolve())


def home(source: str) -> Path:
    """Return the path with ``~`` read as the user's home, where there is one."""
    try:
        return Path(source).expanduser()
    except RuntimeError:  # no such user: then it is a name like any other
        return Path(source)


def relative(location: str, folder: Path) -> str:
    """Undo `resolve`: paths inside ``folder`` become relative, so that a project can be moved."""
    path = Path(location)
    return str(path.relative_to(folder)) if path.is_absolute() and path.is_relative_to(folder) else location


def expand(source: str, what: str = "source") -> str:
    """``source`` with every ``${VARIABLE}`` replaced from the environment; ``what`` names it in messages.

    Raises:
        SourceError: A variable is not set.
    """
    missing = sorted({name for name in _VARIABLE.findall(source) if name not in os.environ})
    if missing:
        raise SourceError(f"{what}: the environment has no {', '.join(missing)}; set it before running privbench")
    login = _LOGIN.match(source)
    cut = login.end() if login else 0
    # A password may hold "@" or "/": what stands before the host is quoted as in URLs, the rest is taken as it is.
    head = _VARIABLE.sub(lambda match: quote(os.environ[match[1]], safe=""), source[:cut])
    return head + _VARIABLE.sub(lambda match: os.environ[match[1]], source[cut:])


def parse_url(url: str, what: str = "source") -> URL:
    """Return the SQLAlchemy URL, with psycopg as the driver of PostgreSQL unless another is named.

    For PostgreSQL, ``?schema=name`` chooses the schema; the server is told by its search path.

    Raises:
        SourceError: It is not a URL SQLAlchemy understands (the text is not repeated: it may hold a password).
    """
    import sqlalchemy as sa

    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise SourceError(
            f"{what}: not a database URL; write dialect://user:${{PASSWORD}}@host:port/database"
        ) from None
    if parsed.drivername in _POSTGRES:
        parsed = parsed.set(drivername="postgresql+psycopg")
    schema = parsed.query.get("schema")
    if not isinstance(schema, str) or parsed.get_backend_name() != "postgresql":
        return parsed
    others = {name: value for name, value in parsed.query.items() if name != "schema"}
    quoted = '"' + schema.replace('"', '""') + '"'
    # Inside of "options", a backslash keeps blanks and itself from ending the argument.
    option = "-csearch_path=" + re.sub(r"([\\\s])", r"\\\1", quoted)
    before = others.get("options")
    return parsed.set(query=others | {"options": f"{before} {option}" if isinstance(before, str) else option})


def describe(url: URL) -> str:
    """Return a name for messages: dialect, host and database; never user, password or query."""
    host = f"{url.host or 'local'}:{url.port}" if url.port else url.host or "local"
    return f"{url.get_backend_name()} database {url.database or '(default)'} at {host}"


def open_engine(url: URL) -> Engine:
    """Return an engine that has connected once and keeps no connection open.

    Raises:
        SourceError: The driver is missing or the server refuses; the message holds no password.
    """
    import sqlalchemy as sa

    try:
        engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
        with engine.connect():
            return engine
    except (ImportError, sa.exc.NoSuchModuleError):
        raise SourceError(f"source: no driver for {url.drivername}; install it beside privbench") from None
    except (sa.exc.SQLAlchemyError, ValueError, TypeError) as error:
        found = f"cannot connect to {describe(url)} ({reason_of(error, url)})"
        raise SourceError(f"source: {found}; check the URL and the server") from None


def connection_parameters(url: URL) -> dict[str, Any]:
    """Parameters for psycopg: apart, because libpq quotes parts of a URL that it cannot parse in its message."""
    query = {key: value if isinstance(value, str) else ",".join(value) for key, value in url.query.items()}
    known = {"host": url.host, "port": url.port, "user": url.username, "password": url.password, "dbname": url.database}
    given = {key: value for key, value in known.items() if value is not None}
    return {"connect_timeout": _CONNECT_SECONDS, **query, **given}


def reason_of(error: Exception, url: URL) -> str:
    """Return the driver's first line about a failure, without anything that was secret in the URL."""
    text = (str(getattr(error, "orig", None) or error).strip() or type(error).__name__).splitlines()[0]
    secrets = [url.password, *(v for k, v in url.query.items() if "pass" in k.lower())]
    for secret in secrets:
        text = text.replace(str(secret), "***") if secret else text
    return text
