from __future__ import annotations

from stage import stage, stage_url

__all__ = ["stage", "stage_url"]
