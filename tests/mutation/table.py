"""All seeded privacy bugs, and the page that lists them."""

from __future__ import annotations

from tests.mutation.mutant import PROJECT, Mutant
from tests.mutation.mutants_of_engines import ENGINES
from tests.mutation.mutants_of_neighbours import NEIGHBOURS
from tests.mutation.mutants_of_noise import DELTA, NOISE, SENSITIVITY
from tests.mutation.mutants_of_payment import CLOSED_LISTS, IDENTITY, LEAKS, PAYMENT
from tests.mutation.mutants_of_rows import STABILITY, TRUNCATION, WEIGHTS
from tests.mutation.mutants_of_workload import HIDDEN_CONSTANTS

# What a bug breaks, a section of the page -> the bugs.
BY_KIND: dict[str, list[Mutant]] = {
    "noise": NOISE, "δ": DELTA, "sensitivity": SENSITIVITY, "neighbours": NEIGHBOURS, "truncation": TRUNCATION,
    "weights": WEIGHTS, "stability": STABILITY, "payment": PAYMENT, "closed lists": CLOSED_LISTS, "leaks": LEAKS,
    "identity": IDENTITY, "rows in databases": ENGINES, "hidden constants": HIDDEN_CONSTANTS,
}  # fmt: skip
MUTANTS = [mutant for mutants in BY_KIND.values() for mutant in mutants]
PAGE = PROJECT / "docs" / "mutations.md"
_INTRODUCTION = """\
# Bugs that the tests find

Does a test fail if the guarantee breaks? Each line is a bug that was put into a copy of the code, by itself; the tests
named beside it ran, and one of them failed. `python -m pytest -m slow --numprocesses=2 tests/mutation` does all of it
again (%d bugs, 11 minutes of CPU). The page is written by `python -m tests.mutation`; a test compares the two. A bug
whose line of code is no longer there fails that test, so the list keeps up with the code."""


def page() -> str:
    """Return the page as Markdown."""
    parts = [_INTRODUCTION % len(MUTANTS)]
    for kind, mutants in BY_KIND.items():
        rows = [f"| {m.bug} | `{m.file}` | {'<br>'.join(_link(test) for test in m.tests)} |" for m in mutants]
        heading = f"## {kind[0].upper()}{kind[1:]}" if kind != "δ" else "## δ"
        parts.append("\n".join([heading, "", "| bug | in | found by |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _link(test: str) -> str:
    file, _, function = test.partition("::")
    return f"[{function or file.split('/')[-1]}](../{file})"
