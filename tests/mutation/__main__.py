"""Write ``docs/mutations.md``: ``python -m tests.mutation``."""

from __future__ import annotations

from tests.mutation.table import PAGE, page

if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
