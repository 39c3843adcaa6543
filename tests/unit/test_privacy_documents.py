"""What ``docs/privacy.md`` names as its proof is there, and its definition is the code that the tests run."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PAGE, PLACES = ((PROJECT / "docs" / name).read_text(encoding="utf-8") for name in ("privacy.md", "operations.md"))


def test_every_place_that_may_hold_something_has_a_test() -> None:
    lines = re.findall(r"^\| .* \|$", PLACES.partition("\n| where | may hold")[2], re.MULTILINE)
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


def test_the_definition_of_neighbours_is_the_code_that_tests_run() -> None:
    source = (PROJECT / "tests" / "helpers" / "neighbours.py").read_text(encoding="utf-8")
    code = source.partition("quotes begins here.\n")[2].partition("\n\n# The definition ends here.")[0].strip()
    assert code.startswith("def removal(")
    assert f"```python\n{code}\n```" in PAGE


def test_rules_and_functions_that_the_page_names_exist() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (PROJECT / "privbench_core").rglob("*.py"))
    for name in re.findall(
        r"`(?:rules_of_keys|relations|admission|view_building|Schema|Table|Relations)?\.?(_?[a-z]+(?:_[a-z]+)+)`", PAGE
    ):
        assert re.search(rf"\b{name}\b", sources), name
