"""Seeded privacy bugs: each is still a change of the code, listed on the page, and found by the tests it names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutation.mutant import PROJECT, Mutant, copy_of_the_project, first_failure, write_module
from tests.mutation.table import MUTANTS, PAGE, page

TESTS = sorted({test for mutant in MUTANTS for test in mutant.tests})


def test_every_bug_still_has_its_place_in_the_code() -> None:
    gone = []
    for mutant in MUTANTS:
        try:
            changed = mutant.applied((PROJECT / mutant.path).read_text(encoding="utf-8"))
            compile(changed, str(mutant.path), "exec")
        except (OSError, ValueError, SyntaxError) as error:
            gone.append(str(error))
    assert not gone, "renew these in tests/mutation:\n" + "\n".join(gone)


def test_every_bug_is_named_once_and_has_tests_that_exist() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names)) >= 60
    for test in TESTS:
        file, _, function = test.partition("::")
        assert f"def {function}(" in (PROJECT / file).read_text(encoding="utf-8"), test


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.mutation"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project without a bug, where all the named tests pass: a test that always fails finds nothing."""
    folder = copy_of_the_project(tmp_path_factory.mktemp("mutation") / "project")
    assert first_failure(folder, tuple(TESTS)) is None
    return folder


@pytest.fixture
def mutated(copy: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The copy with one bug in it."""
    mutant: Mutant = request.param
    target = copy / mutant.path
    original = target.read_text(encoding="utf-8")
    write_module(target, mutant.applied(original))
    yield copy
    write_module(target, original)


@pytest.mark.slow
@pytest.mark.parametrize(("mutated", "mutant"), [pytest.param(m, m, id=m.name) for m in MUTANTS], indirect=["mutated"])
def test_every_bug_is_found(mutated: Path, mutant: Mutant) -> None:
    found = first_failure(mutated, mutant.tests)
    assert found, f"{mutant.bug} (privbench_core/{mutant.file}) is not noticed by {', '.join(mutant.tests)}"
