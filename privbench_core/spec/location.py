"""Locations of sources: paths, and URLs whose secrets stay out of files and messages."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from privbench_core.errors import SourceError

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

PASSWORD = "PRIVBENCH_PASSWORD"  # noqa: S105 - the name of an environment variable
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SPARK = "sc://"
_SQLITE = "sqlite"
_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_LOGIN = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*@")
# A password may contain anything but "@", see SQLAlchemy; one that is a variable is no secret.
_WITH_PASSWORD = re.compile(r"^([^:/]+://[^:/]*:)(?!\$\{\w+\}@)[^@]+@")
_TOKEN = re.compile(r"(;[\w-]*(?:token|secret|passw(?:or)?d|authorization)=)(?!\$\{\w+\}(?:;|$))[^;]+", re.IGNORECASE)
_PASSWORD_OPTION = re.compile(r"([?&]\w*(?:password|passwd)=)(?!\$\{\w+\}(?:&|$))[^&]+")
# Without a driver in the scheme, SQLAlchemy's default applies, which changes; we name the one that we install.
_POSTGRES = frozenset({"postgres", "postgresql"})
_CONNECT_SECONDS = 15  # chosen by hand


def is_url(source: str) -> bool:
    """Return whether ``source`` is a database URL rather than a path."""
    return bool(_URL.match(source))


def is_spark_url(source: str) -> bool:
    """Return whether ``source`` is a URL of Spark Connect."""
    return source.startswith(_SPARK)


def split_spark_url(url: str) -> tuple[str, tuple[str, ...]]:
    """Return a URL of Spark Connect without its path, and the names in the path: of a schema, perhaps its catalogue's.

    >>> split_spark_url("sc://host:15002/main.my%20sales;token=${SPARK_TOKEN}")
    ('sc://host:15002/;token=${SPARK_TOKEN}', ('main', 'my sales'))
    """
    place, mark, parameters = url.partition(";")
    host, _, path = place.removeprefix(_SPARK).partition("/")
    names = tuple(map(unquote, path.removesuffix("/").split("."))) if path else ()
    return f"{_SPARK}{host}/{mark}{parameters}", names


def check_spark_url(url: str) -> None:
    """Refuse a source in a Spark catalogue that does not say which schema; no message repeats it."""
    _, names = split_spark_url(url)
    if not names or not all(names):
        todo = "write sc://host:port/schema, or sc://host:port/catalogue.schema"
        raise SourceError(f"source: the URL names no schema of the cluster's catalogue; {todo}")


def resolve(source: str, folder: Path) -> str:
    """Make a path absolute, relative to ``folder``; URLs and text with ``${VARIABLE}`` are kept for `expand`."""
    if is_url(source) or _VARIABLE.search(source):
        return source
    return str((folder / home(source)).resolve())


def absolute(url: str) -> str:
    """Return a URL of a SQLite file with the whole path, which SQLAlchemy takes from the current folder; others as is.

    >>> absolute("postgresql://me@host/d"), absolute("sqlite:////data/shop.db")
    ('postgresql://me@host/d', 'sqlite:////data/shop.db')
    """
    if "${" in url or not url.startswith(_SQLITE):
        return url
    parsed = parse_url(url)
    file = _sqlite_file(parsed)
    return url if file is None else parsed.set(database=str(file.resolve())).render_as_string()


def _sqlite_file(url: URL) -> Path | None:
    """Return the file of a SQLite URL, None of one in memory or with options of SQLite's own."""
    named = url.database if url.get_backend_name() == _SQLITE else None
    return None if not named or named.startswith((":", "file:")) else Path(named)


def home(source: str) -> Path:
    """Return the path with ``~`` expanded to the user's home, if there is one."""
    try:
        return Path(source).expanduser()
    except RuntimeError:  # no such user: an ordinary name
        return Path(source)


def relative(location: str, folder: Path) -> str:
    """Return the inverse of `resolve`: paths inside ``folder`` become relative, so that a project can be moved."""
    path = Path(location)
    return str(path.relative_to(folder)) if path.is_absolute() and path.is_relative_to(folder) else location


def expand(source: str, what: str = "source") -> str:
    """Return ``source`` with every ``${VARIABLE}`` replaced from the environment; ``what`` names it in messages.

    Raises:
        SourceError: A variable is not set.
    """
    missing = sorted({name for name in _VARIABLE.findall(source) if name not in os.environ})
    if missing:
        raise SourceError(f"{what}: the environment has no {', '.join(missing)}; set it before running privbench")
    login = _LOGIN.match(source)
    cut = login.end() if login else 0
    # A password may contain "@" or "/": values before the host are URL-quoted, others are inserted as they are.
    head = _VARIABLE.sub(lambda match: quote(os.environ[match[1]], safe=""), source[:cut])
    return head + _VARIABLE.sub(lambda match: os.environ[match[1]], source[cut:])


def parse_url(url: str, what: str = "source") -> URL:
    """Return the SQLAlchemy URL, with psycopg as the driver of PostgreSQL unless another is named.

    For PostgreSQL, ``?schema=name`` chooses the schema, by way of the search path.

    Raises:
        SourceError: SQLAlchemy cannot parse it (the message does not repeat the text: it may hold a password).
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
    # Inside of "options", a backslash escapes blanks and itself.
    option = "-csearch_path=" + re.sub(r"([\\\s])", r"\\\1", quoted)
    before = others.get("options")
    return parsed.set(query=others | {"options": f"{before} {option}" if isinstance(before, str) else option})


def without_password(source: str) -> str:
    """Return a URL as it is written, but with ``${PRIVBENCH_PASSWORD}`` in place of a password or a token in it.

    >>> without_password("postgresql://me:hunter2@host/d?schema=Sales Dept")
    'postgresql://me:${PRIVBENCH_PASSWORD}@host/d?schema=Sales Dept'
    >>> without_password("postgresql://me:hunter2@${HOST}/d"), without_password("postgresql://me:${SECRET}@host/d")
    ('postgresql://me:${PRIVBENCH_PASSWORD}@${HOST}/d', 'postgresql://me:${SECRET}@host/d')
    >>> without_password("sc://host/sales;user_id=me@example.org;token=hunter2")
    'sc://host/sales;user_id=me@example.org;token=${PRIVBENCH_PASSWORD}'
    """
    variable = f"${{{PASSWORD}}}"
    if is_spark_url(source):
        return _TOKEN.sub(lambda match: f"{match[1]}{variable}", source)
    hidden = _WITH_PASSWORD.sub(lambda match: f"{match[1]}{variable}@", source)
    return _PASSWORD_OPTION.sub(lambda match: f"{match[1]}{variable}", hidden)


def describe(url: URL) -> str:
    """Return a name for messages: dialect, host and database; never user, password or query."""
    host = f"{url.host or 'local'}:{url.port}" if url.port else url.host or "local"
    return f"{url.get_backend_name()} database {url.database or '(default)'} at {host}"


def open_engine(url: URL) -> Engine:
    """Return an engine that has connected once and keeps no connection open.

    Raises:
        SourceError: The driver is missing, the server refuses, or there is no such file; the message holds no password.
    """
    import sqlalchemy as sa

    file = _sqlite_file(url)
    if file is not None and not file.is_file():  # SQLite would make an empty one
        raise SourceError(f"source: there is no file {file}; check the path")
    try:
        engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
        with engine.connect():
            return engine
    except (ImportError, sa.exc.NoSuchModuleError):
        raise SourceError(f"source: no driver for {url.drivername}; install it beside privbench") from None
    except (sa.exc.SQLAlchemyError, ValueError, TypeError) as error:
        found = f"cannot connect to {describe(url)} ({reason_of(error, url)})"
        raise SourceError(f"source: {found}; check the URL and the server") from None


def libpq_uri(url: URL) -> str:
    """Return the URL as libpq reads it: a blank in an option is ``%20`` there, and ``+`` is a plus.

    >>> libpq_uri(parse_url("postgresql://me@host/d?schema=Sales Dept").set(drivername="postgresql"))
    'postgresql://me@host/d?options=-csearch_path%3D%22Sales%5C%20Dept%22'
    """
    place, mark, query = url.render_as_string(hide_password=False).partition("?")
    return f"{place}{mark}{query.replace('+', '%20')}"


def connection_parameters(url: URL) -> dict[str, Any]:
    """Return separate parameters for psycopg: libpq's error messages quote parts of a URL that it cannot parse."""
    query = {key: value if isinstance(value, str) else ",".join(value) for key, value in url.query.items()}
    known = {"host": url.host, "port": url.port, "user": url.username, "password": url.password, "dbname": url.database}
    given = {key: value for key, value in known.items() if value is not None}
    return {"connect_timeout": _CONNECT_SECONDS, **query, **given}


def reason_of(error: Exception, url: URL) -> str:
    """Return the first line of the driver's error message, without secrets of the URL."""
    text = (str(getattr(error, "orig", None) or error).strip() or type(error).__name__).splitlines()[0]
    secrets = [url.password, *(v for k, v in url.query.items() if "pass" in k.lower())]
    for secret in secrets:
        text = text.replace(str(secret), "***") if secret else text
    return text
