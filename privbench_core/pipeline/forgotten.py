"""Bundles remember what was spent: one that knows of more than the ledger does must not be replaced.

The manifest of a bundle says what all releases of its account had cost when it was written. A ledger that knows of
less has lost entries, or is another one; to replace the bundle would publish a smaller total than the true one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from privbench_core.errors import LedgerError
from privbench_core.privacy.ledger.ledger import Ledger
from privbench_core.publishing.bundle import MANIFEST, is_bundle
from privbench_core.spec.model import Spec

_ROUNDING = 1 + 1e-6  # far above what manifests round (1e-9), far below any release


def refuse_forgotten(spec: Spec, ledger: Ledger, out: Path) -> None:
    """Refuse to replace a bundle that records more spending than the ledger knows of.

    Args:
        spec: Of the database; a bundle of another database, cohort or unit says nothing about its account.
        ledger: Of the database.
        out: Folder of the bundle, which may not be there.

    Raises:
        LedgerError: The bundle knows of more; nothing was spent.
    """
    if not is_bundle(out):
        return
    manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    try:
        guarantee = manifest["privacy"]["guarantee"]
        epsilon = float(guarantee["all_releases_so_far"]["epsilon_at_most"])
        delta = float(guarantee["all_releases_so_far"]["delta"])
        account = _account(manifest["database"], guarantee)
    except (KeyError, TypeError, ValueError):
        return  # of another version, or by another program: it records no total
    if account != (spec.schema.name, spec.cohort, spec.schema.unit_in_words):
        return
    known = ledger.spent_at(delta, spec.cohort)
    if epsilon > known * _ROUNDING:
        raise LedgerError(
            f"{out}: this bundle records that ε={epsilon:.4g} was spent by all releases so far (δ={delta:.2g}), and the"
            f" ledger of {spec.schema.name} knows of ε={known:.4g} only: spending was forgotten, so the bundle is not"
            " replaced, and nothing was spent. Restore the state folder and the ledger that it was made with. If they"
            " are lost, keep the bundle, write to another --out, and tell recipients that the two totals add up"
        )


def _account(database: str, guarantee: dict[str, Any]) -> tuple[str, str, str]:
    return database, guarantee.get("cohort", {}).get("name", ""), guarantee["unit"]
