"""Everything that can go wrong, as one tree.

    PrivbenchError
    ├── SpecError               the spec file: every problem at once
    ├── SourceError             the source cannot be read, or its rows break what the spec declares
    │   └── SourceChangedError  the source is no longer the one that was profiled
    ├── BudgetError             a price that cannot be paid
    │   ├── BudgetExhaustedError    the ledger or a step has too little left
    │   └── UnsupportedBudgetError  the mechanism has no form for this budget (say, no pure form)
    ├── LedgerError             the ledger cannot be read or written, so nothing may be looked at
    ├── ReleaseError            a stored artifact is missing or corrupt
    ├── BusyError               another process has been at work on the same thing for too long
    ├── PublishError            the bundle could not be written or loaded
    ├── ValidationError         the synthetic data breaks an expectation
    └── InternalError           our bug, never the user's

Messages name ``table.column``, what was found and what to do. Nothing read from private rows may stand in
``str(error)``, because messages end in logs and in the orchestrator's event log. What only the data owner may see
(counts of offending rows) goes into ``private_detail``, which the command line prints on the owner's terminal and
nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class PrivbenchError(Exception):
    """Base of all errors a caller may want to catch.

    Attributes:
        private_detail: Text for the data owner only; never logged, never part of ``str(error)``.
    """

    def __init__(self, message: str, *, private_detail: str | None = None) -> None:
        super().__init__(message)
        self.private_detail = private_detail


class SpecError(PrivbenchError):
    """The spec is wrong. ``problems`` lists every mistake found, each naming where, what and what to do."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class SourceError(PrivbenchError):
    """The source cannot be read, or its rows break what the spec declares."""


class SourceChangedError(SourceError):
    """The source is no longer the one an earlier step looked at."""


class BudgetError(PrivbenchError):
    """A price that cannot be paid."""


class BudgetExhaustedError(BudgetError):
    """Too little budget is left; nothing was looked at."""


class UnsupportedBudgetError(BudgetError):
    """The mechanism has no form for this kind of budget."""


class LedgerError(PrivbenchError):
    """The ledger cannot be read or written: nothing may be looked at before it can."""


class ReleaseError(PrivbenchError):
    """A stored artifact is missing or does not match its checksum."""


class BusyError(PrivbenchError):
    """Another process has been at work on the same thing for too long; nothing was looked at."""


class PublishError(PrivbenchError):
    """A bundle could not be written, read or loaded."""


class ValidationError(PrivbenchError):
    """The synthetic database breaks an expectation."""


class InternalError(PrivbenchError):
    """A bug of ours; please report it."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the nearest known one, else the list of known ones.

    >>> did_you_mean("persn", ["person", "household"])
    "did you mean 'person'?"
    >>> did_you_mean("x", ["person", "household"])
    'known: household, person'
    """
    options = sorted(set(known))
    close = get_close_matches(name, options, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(options) or 'none'}"
