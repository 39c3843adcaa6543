"""All errors, as one tree.

    PrivbenchError
    ├── SpecError               the spec file: every problem at once
    ├── SourceError             the source cannot be read, or its rows break what the spec declares
    │   └── SourceChangedError  the source has changed since it was profiled
    ├── BudgetError             the budget does not allow a measurement
    │   ├── BudgetExhaustedError    the ledger or a step has too little budget left
    │   ├── NoiseOnlyError          what is still to be bought is known to be noise, and nobody accepted that
    │   └── UnsupportedBudgetError  the mechanism does not support this kind of budget (say, pure ε)
    ├── LedgerError             the ledger cannot be read or written, so no private row may be read
    ├── ReleaseError            a stored artifact is missing or corrupt
    ├── BusyError               another process has been at work on the same thing for too long
    ├── OutOfMemoryError        a step needs more memory than there is
    ├── PublishError            the bundle could not be written or loaded
    ├── ValidationError         the synthetic data breaks an expectation
    └── InternalError           a bug of privbench, never the user's

Messages name ``table.column``, what was found and what to do. ``str(error)`` must not contain anything from private
rows, because messages end up in logs and in the orchestrator's event log. What only the data owner may see (counts of
offending rows) goes into ``private_detail``, which only the command line prints, on the owner's terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class PrivbenchError(Exception):
    """Base class of all errors.

    Attributes:
        private_detail: Text for the data owner only; never logged, never part of ``str(error)``.
    """

    def __init__(self, message: str, *, private_detail: str | None = None) -> None:
        super().__init__(message)
        self.private_detail = private_detail


class SpecError(PrivbenchError):
    """The spec is wrong. ``problems`` lists every mistake: where it is, what it is and how to fix it."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class SourceError(PrivbenchError):
    """The source cannot be read, or its rows break what the spec declares."""


class SourceChangedError(SourceError):
    """The source has changed since an earlier step read it."""


class BudgetError(PrivbenchError):
    """The budget does not allow a measurement."""


class BudgetExhaustedError(BudgetError):
    """Too little budget is left; no private row was read."""


class NoiseOnlyError(BudgetError):
    """Released numbers show that most of what is still to be bought would be noise; it was not bought."""


class UnsupportedBudgetError(BudgetError):
    """The mechanism does not support this kind of budget."""


class LedgerError(PrivbenchError):
    """The ledger cannot be read or written; until it can, no private row may be read."""


class ReleaseError(PrivbenchError):
    """A stored artifact is missing or does not match its checksum."""


class BusyError(PrivbenchError):
    """Another process has been at work on the same thing for too long; no private row was read."""


class OutOfMemoryError(PrivbenchError):
    """A step needs more memory than there is; what was released before it stays paid for, and usable."""


class PublishError(PrivbenchError):
    """A bundle could not be written, read or loaded."""


class ValidationError(PrivbenchError):
    """The synthetic database breaks an expectation."""


class InternalError(PrivbenchError):
    """A bug of privbench; please report it."""


def first_of(names: Sequence[str], most: int = 5, mark: str = ", ") -> str:
    """Return the first ``most`` names, and how many there are besides.

    >>> first_of(["a", "b", "c"]), first_of(["a", "b", "c"], 1)
    ('a, b, c', 'a and 2 more')
    """
    return mark.join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint for a misspelt name: the most similar known one, else all known ones.

    >>> did_you_mean("persn", ["person", "household"])
    "did you mean 'person'?"
    >>> did_you_mean("x", ["person", "household"])
    'known: household, person'
    """
    close = most_similar(name, known)
    return f"did you mean '{close}'?" if close else f"known: {', '.join(sorted(set(known))) or 'none'}"


def most_similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that a misspelt one probably means, None if none is similar."""
    return next(iter(get_close_matches(name, sorted(set(known)), n=1, cutoff=0.6)), None)
