"""The conformance vectors of cron, `tests/vectors/`: one JSON object a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent / "vectors"


def vectors(name: str) -> list[dict[str, Any]]:
    """The cases of one file; it is part of the tree, so that none can be missing unnoticed."""
    return [json.loads(line) for line in (VECTORS / name).read_text(encoding="utf-8").splitlines()]
