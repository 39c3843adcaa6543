"""``python -m privbench_core`` is the same as ``privbench``."""

from __future__ import annotations

from privbench_core.cli import main

if __name__ == "__main__":
    main()
