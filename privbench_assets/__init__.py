"""Dagster on top of `privbench_core`: a step of a plan is an asset, an ε a partition. Nothing that core could do.

Here are names that Dagster accepts: asset keys, group names and identifiers made from what a spec calls things.

Names of tables and keys are free text in a spec, while Dagster wants letters, digits and underscores nearly
everywhere.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from privbench_core.synthesizers.contract import Key


_KEY_PART = re.compile(r"[A-Za-z0-9_.-]+")
_WORD = re.compile(r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)*")  # no double underscore, which separates words


def step_key(database: str, key: Key) -> dg.AssetKey:
    """Return the asset of a step: ``[database, stage, name]``. Graphs show the name alone, so it has the stage.

    >>> step_key("town", ("profile", "person")).to_user_string()
    'town/profile/person_profile'
    >>> step_key("town", ("publish", "bundle")).to_user_string()
    'town/publish/bundle'
    """
    from privbench_core.synthesizers.contract import StepKind  # loads Arrow, and this is imported for a name alone

    stage, *name = key
    if name and stage != StepKind.PUBLISH:  # whose last word says enough
        name[-1] = f"{name[-1]}_{stage}"
    return _key(database, stage, *name)


def source_key(database: str, table: str) -> dg.AssetKey:
    """Return the asset that stands for a table of the source."""
    return _key(database, "source", table)


def status_key(database: str) -> dg.AssetKey:
    """Return the asset that shows the state of every table at every ε."""
    return _key(database, "benchmark_status")


def report_key(database: str) -> dg.AssetKey:
    """Return the asset of the internal report on each bundle."""
    return _key(database, "evaluate", "report")


def identifier(*words: str) -> str:
    """Return a name for an op, a resource, a job, a group or a check, different for different words.

    >>> identifier("households", "model", "person")
    'households__model__person'
    """
    return "__".join(_legal(word, _WORD) for word in words)


def group(database: str, table: str = "") -> str:
    """Return the group of a table's assets, from its source to its validation, or of what the whole database has."""
    return identifier(database, table) if table else identifier(database)


def op_name(database: str, key: Key) -> str:
    """Return what a step is called inside a run; a foreign key, "person.household_id", counts as two words."""
    return identifier(database, *(word for part in key for word in part.split(".") if word))


def _key(*words: str) -> dg.AssetKey:
    return dg.AssetKey([_legal(word, _KEY_PART) for word in words])


def _legal(text: str, allowed: re.Pattern[str]) -> str:
    """``text`` if it is allowed as it is, else its allowed characters and a short hash that keeps names apart."""
    if allowed.fullmatch(text):
        return text
    kept = "_".join(re.findall(r"[A-Za-z0-9]+", text)) or "x"
    return f"{kept}_{blake2b(text.encode(), digest_size=3).hexdigest()}"
