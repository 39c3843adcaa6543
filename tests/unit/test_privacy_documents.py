"""What ``docs/privacy.md`` names as its proof is there."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "privacy.md").read_text(encoding="utf-8")


def test_every_place_that_may_hold_something_has_a_test() -> None:
    lines = re.findall(r"^\| .* \|$", PAGE.partition("\n| where | may hold")[2], re.MULTILINE)
    assert len(lines) >= 12
    for line in lines:
        where, *_, proof = (cell.strip() for cell in line.strip("|").split("|"))
        file = ""
        named = re.findall(r"`(?:(tests/[\w/]+\.py))?::(\w+)`", proof)
        assert named, where
        for path, test in named:
            file = path or file
            assert re.search(rf"^def {test}\(", (PROJECT / file).read_text(encoding="utf-8"), re.MULTILINE), test


def test_every_file_of_tests_that_is_named_exists() -> None:
    for name in re.findall(r"`(tests/[\w/]+\.(?:py|txt))", PAGE):
        assert (PROJECT / name).is_file(), name
