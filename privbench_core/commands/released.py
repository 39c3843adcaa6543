"""What was released of a table before: the numbers of rows that a plan may speak of."""

from __future__ import annotations

from privbench_core.commands.lifetime import reading_ledger
from privbench_core.errors import ReleaseError
from privbench_core.models.profile import Profile
from privbench_core.models.row_count import RowCount
from privbench_core.pipeline.places import database_folder
from privbench_core.pipeline.workspace import ReleaseStore
from privbench_core.spec.model import Spec
from privbench_core.synthesizers.artifact import Artifact


def released_rows(spec: Spec) -> dict[str, RowCount]:
    """Return the released size of each private table that was profiled before, at whichever ε; reads no private row."""
    if not (database_folder(spec) / "releases").exists():
        return {}
    store = ReleaseStore(database_folder(spec) / "releases", shared=spec.state / "releases")
    found: dict[str, RowCount] = {}
    with reading_ledger(spec) as ledger:
        for table in spec.schema.private_tables:
            key = ledger.last_release(f"profile/{table.name}", spec.cohort)
            stored = store.get(key, ledger.released(key)) if key else None
            if stored is not None:
                try:
                    found[table.name] = Profile.from_dict(Artifact.from_bytes(stored).data["profile"]).size
                except (KeyError, ReleaseError):  # of another version: as if it had not been
                    continue
    return found
