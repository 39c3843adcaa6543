"""The page on what is supported is the one that the list of features makes, and every test it names is there."""

from __future__ import annotations

import pytest

from benchmarks import support
from privbench_core.errors import InternalError


def test_every_named_test_exists() -> None:
    assert support.missing_tests() == []


def test_the_page_is_up_to_date() -> None:
    assert support.PAGE.read_text(encoding="utf-8") == support.page(), "run python -m benchmarks.support"


def test_no_line_is_without_a_test_or_there_twice() -> None:
    lines = list(support.features())
    assert all(line.tests for line in lines)
    assert len({(line.group, line.name) for line in lines}) == len(lines)
    assert {line.support for line in lines} == set(support.Support)


def test_a_test_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = support.Feature(
        "g", "f", support.Support.YES, "", ("tests/unit/test_ddl.py::test_gone", "tests/no.py::test")
    )
    monkeypatch.setattr(support, "features", lambda: iter([gone]))
    with pytest.raises(InternalError, match=r"no such tests: tests/no\.py::test, tests/unit/test_ddl\.py::test_gone;"):
        support.page()
