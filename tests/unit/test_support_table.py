"""The page on what is supported is the one that the list of features makes, and every test it names is there."""

from __future__ import annotations

from benchmarks import support


def test_every_named_test_exists() -> None:
    assert support.missing_tests() == []


def test_the_page_is_up_to_date() -> None:
    assert support.PAGE.read_text(encoding="utf-8") == support.page(), "run python -m benchmarks.support"
