"""Appending to a real PostgreSQL, in which every statement of the stream keeps all constraints."""

from __future__ import annotations

import re

import psycopg
import pytest

from privbench_core import append, publish
from privbench_core.errors import PublishError
from tests.helpers.club import write_club
from tests.helpers.postgres import execute, new_database, rows


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return write_club(tmp_path_factory.mktemp("club") / "bundle")


def test_each_statement_of_the_stream_leaves_a_consistent_database(postgres, bundle, tmp_path):
    one, whole = new_database(postgres, "append_one"), new_database(postgres, "append_whole")
    for url in (one, whole):
        publish(bundle, url)
    for _ in range(2):
        append(bundle, tmp_path / "weeks.sql")
        appended = append(bundle, whole)
    text = (tmp_path / "weeks.sql").read_text(encoding="utf-8")
    with psycopg.connect(one, autocommit=True) as connection:
        for statement in re.findall(r"^INSERT .*;$", text, re.MULTILINE):
            connection.execute(statement.encode())
    for table in appended.rows:
        query = f'SELECT * FROM "{table}" ORDER BY 1, 2, 3' if table != "refund" else "SELECT * FROM refund ORDER BY 1"
        assert rows(one, query) == rows(whole, query)
    assert append(bundle, one).window == 3


def test_new_rows_are_numbered_after_those_that_were_appended(postgres, bundle):
    url = new_database(postgres, "append_numbered")
    publish(bundle, url)
    append(bundle, url, 60)
    execute(url, "INSERT INTO member (email, plan, kind, joined) VALUES ('a@b', 'full', 'adult', now())")
    assert rows(url, "SELECT max(id) FROM member") == rows(url, "SELECT id FROM member WHERE email = 'a@b'")


def test_a_refusal_changes_nothing(postgres, bundle):
    url = new_database(postgres, "append_refused")
    publish(bundle, url)
    execute(url, "ALTER TABLE booking ADD CONSTRAINT old CHECK (at < '2026-01-10')")
    before = rows(url, "SELECT count(*) FROM item")
    with pytest.raises(PublishError, match="refused the rows, and nothing was changed"):
        append(bundle, url, 30)
    assert rows(url, "SELECT count(*) FROM item") == before
    execute(url, "DROP TABLE item, refund, booking")
    with pytest.raises(PublishError, match="does not hold this bundle; load it first"):
        append(bundle, url)
