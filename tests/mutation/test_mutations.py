"""Seeded privacy bugs: each is still a change of the code, listed on the page, and found by the tests it names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutation.mutant import PROJECT, Mutant, copy_of_the_project, write_module
from tests.mutation.table import MUTANTS, PAGE, page
from tests.mutation.warm import Warm, warm

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
    """The project without a bug; every process that runs a part of these tests has one of its own."""
    return copy_of_the_project(tmp_path_factory.mktemp("mutation") / "project")


@pytest.fixture(scope="module")
def runner(copy: Path) -> Iterator[Warm]:
    """Runs tests in the copy."""
    with warm(copy) as process:
        yield process


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted({test.partition("::")[0] for test in TESTS}))
def test_all_pass_without_a_bug(runner: Warm, file: str) -> None:
    """A test that always fails finds nothing."""
    assert runner.first_failure([test for test in TESTS if test.startswith(f"{file}::")]) is None


@pytest.fixture
def mutant(copy: Path, request: pytest.FixtureRequest) -> Iterator[Mutant]:
    """A bug, in the copy meanwhile."""
    mutant: Mutant = request.param
    target = copy / mutant.path
    original = target.read_text(encoding="utf-8")
    write_module(target, mutant.applied(original))
    yield mutant
    write_module(target, original)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [pytest.param(m, id=m.name) for m in MUTANTS], indirect=True)
def test_every_bug_is_found(runner: Warm, mutant: Mutant) -> None:
    found = runner.first_failure(mutant.tests)
    assert found, f"{mutant.bug} ({mutant.path}) is not noticed by {', '.join(mutant.tests)}"
