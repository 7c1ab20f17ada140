"""The conformance vectors of cron: one JSON object a line.

They are shared with other evaluators, in a folder `shared/vectors` beside the checkout; a clone without it has a copy
in `tests/vectors/`, so that no case can be missing unnoticed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
PLACES = [*(parent / "shared" / "vectors" for parent in HERE.parents), HERE.parent / "vectors"]
VECTORS = next(place for place in PLACES if place.is_dir())


def vectors(name: str) -> list[dict[str, Any]]:
    """The cases of one file."""
    return [json.loads(line) for line in (VECTORS / name).read_text(encoding="utf-8").splitlines()]
