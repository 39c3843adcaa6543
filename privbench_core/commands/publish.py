"""``privbench publish``: load a bundle into a database."""

from __future__ import annotations

from pathlib import Path

from privbench_core.commands.terminal import print_json, say, show
from privbench_core.publishing.load import load_bundle


def load(bundle: Path, target: str, *, replace: bool, as_json: bool) -> None:
    """Load ``bundle`` into ``target`` and print the rows per table.

    Raises:
        PublishError: The bundle is damaged, or the target refuses; the target is unchanged.
    """
    loaded = load_bundle(bundle, target, replace=replace)
    if as_json:
        print_json({"bundle": str(bundle), "rows": loaded.rows, "left_out": list(loaded.left_out)})
        return
    show("Loaded", ["table", ">rows"], [[name, f"{count:,}"] for name, count in loaded.rows.items()])
    say("Keys, indexes and statistics are in place.")
    for part in loaded.left_out:
        say(f"Left out, because the target cannot hold it: {part}")
