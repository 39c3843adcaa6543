"""Definitions: the code location ``privbench``, with every spec found. A broken spec disables only itself, visibly.

Specs are looked for in the files and folders that ``PRIVBENCH_SPECS`` lists (separated as in ``PATH``), else in
``examples/*/spec.yaml`` and ``specs/*.yaml`` of the project. Loading is left to Dagster, so importing this module
costs nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import dagster as dg

from privbench_core.errors import PrivbenchError, SpecError

_LOG = logging.getLogger(__name__)
VARIABLE = "PRIVBENCH_SPECS"


@dg.definitions
def defs() -> dg.Definitions:
    """Everything that `find_specs` finds."""
    return load_defs(find_specs(os.environ.get(VARIABLE), project_root()))


def project_root() -> Path:
    """Return the folder of the clone this runs from, else the current folder: an installed package has no specs."""
    above = Path(__file__).resolve().parents[1]
    return above if (above / "pyproject.toml").exists() else Path.cwd()


def find_specs(listed: str | None, root: Path) -> list[Path]:
    """Spec files, each once.

    Args:
        listed: Files and folders separated by ``os.pathsep``; a file that does not exist is kept, so that it is
            reported.
        root: Where to look if nothing is listed.
    """
    if not listed:
        return [*sorted(root.glob("examples/*/spec.yaml")), *sorted(root.glob("specs/*.yaml"))]
    found: list[Path] = []
    for entry in filter(None, listed.split(os.pathsep)):
        path = Path(entry).expanduser()
        inside = [*path.glob("*.yaml"), *path.glob("*.yml"), *path.glob("*/spec.yaml")]
        found += sorted(inside) if path.is_dir() else [path]
    return list(dict.fromkeys(path.absolute() for path in found))


def load_defs(paths: Sequence[Path]) -> dg.Definitions:
    """Return the definitions of all specs, merged; each spec that cannot be used becomes an asset that says why."""
    from privbench_assets.build import build_defs
    from privbench_core.spec.load import load_spec

    parts: list[dg.Definitions] = []
    broken: list[tuple[Path, str]] = []
    taken: dict[str, Path] = {}
    for path in paths:
        try:
            spec = load_spec(path)
            name = spec.schema.name
            if other := taken.get(name.casefold()):
                raise SpecError(f"database {name}: {other} has the same database name; rename one of the two")  # noqa: TRY301
            parts.append(build_defs(spec))
            taken[name.casefold()] = path
        except PrivbenchError as error:
            broken.append((path, str(error)))
        except Exception as error:  # noqa: BLE001 - whatever one spec does, the others stay
            _LOG.exception("%s", path)
            broken.append((path, f"{type(error).__name__}: {error}. Please report it."))
    return dg.Definitions.merge(*parts, dg.Definitions(assets=broken_specs(broken)))


def broken_specs(broken: Iterable[tuple[Path, str]]) -> list[dg.AssetSpec]:
    """Return an asset per broken spec, named after its file, whose description says what is wrong. Also logged."""
    specs: dict[str, dg.AssetSpec] = {}
    for path, problem in broken:
        _LOG.warning("%s cannot be used: %s", path, problem)
        name = _asset_name(path, specs)
        specs[name] = dg.AssetSpec(
            [name, "broken_spec"],
            description=(
                f"This spec cannot be used, so its database is missing here; the others are not affected. Fix"
                f" `{path}`, then click Reload definitions (the arrows beside the code location)."
                f"\n\n```\n{problem}\n```"
            ),
            group_name="broken_specs",
            kinds={"yaml"},
            tags={"privbench/stage": "broken"},
            metadata={"spec": dg.MetadataValue.path(str(path)), "problems": len(problem.splitlines())},
        )
    return list(specs.values())


def _asset_name(path: Path, taken: Iterable[str]) -> str:
    """Return the file's stem (its folder's name, where every file is called spec), numbered if that is taken."""
    from privbench_assets import identifier

    stem = identifier(path.parent.name if path.stem == "spec" else path.stem)
    number = sum(name == stem or name.startswith(f"{stem}_") for name in taken)
    return f"{stem}_{number + 1}" if number else stem
