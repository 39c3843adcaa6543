"""The JSON Schema of a spec file, for editors: ``python -m privbench_core.spec.json_schema`` prints it.

It follows from the forms that `load_spec` reads by. privbench itself checks more than the schema can say.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from privbench_core.spec.load import SPEC


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema, in draft 2020-12."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "privbench spec", **SPEC.schema}


if __name__ == "__main__":
    json.dump(json_schema(), sys.stdout, indent=2)
