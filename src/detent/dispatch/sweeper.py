"""Looks now and then for due work that fell behind the place where claims begin (see `rank`).

On a connection of its own and beside the claims: while somebody holds a snapshot open it reads every row that
was claimed since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from detent.dispatch.claimer import Claimer
from detent.runtime.service import Service


class Sweeper(Service):
    name = "sweeper"
    every = 5.0

    def __init__(self, claimer: Claimer, pools: Sequence[str], found: Callable[[], None]) -> None:
        super().__init__()
        self._claimer = claimer
        self._pools = pools
        self._found = found

    async def run_once(self) -> float | None:
        if await self._claimer.look_behind(self._pools):
            self._found()
        return None
