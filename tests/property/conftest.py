from __future__ import annotations

from stage import stage_url

__all__ = ["stage_url"]
