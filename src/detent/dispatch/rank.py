"""The order of work within a pool, and where a claim begins to look for it. Pure.

A rank is an instant, from which on an execution may run, less a head start by class, in milliseconds above a
running number of 20 bits. So classes are preferred and no wait is unbounded: what is queued more than 15
minutes after a `low` execution never goes before it, whatever its class. Retries and hand-backs get a rank of
their new instant. `detent.rank` computes it where rows are written.

Ranks of a class only grow, so a claim need not begin at the start of the index, where every row that was
ever claimed lies dead for as long as somebody holds a snapshot open. It begins where the last one ended.
Three things can leave a row behind that place: it was committed late, it was locked by somebody who let go
of it, or the clock was set. A look at everything now and then (`Sweeper`) finds those.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

# Seconds by class: critical, high, normal, low.
HEAD_START = (900, 300, 60, 0)
LOWEST, HIGHEST = -(2**63), 2**63 - 1

# How late a row may be committed after it got its rank and still be found by the next claim.
COMMIT_US = 250_000
# How often a claim ahead looks also before what was claimed ahead already.
LOOK_AGAIN_US = 500_000
# How far a worker's copy of the database's clock may be behind: what is due is for the statement to say.
SLACK_US = 50_000


class Range(NamedTuple):
    """Ranks of one class from `low` up to but not including `high`, and how many to take of them."""

    klass: int
    low: int
    high: int
    most: int


def rank_floor(klass: int, at_us: int) -> int:
    """The lowest rank of this class at an instant, in microseconds since 1970."""
    return (at_us // 1000 - 1000 * HEAD_START[klass]) << 20


def everything(limit: int) -> list[Range]:
    return [Range(klass, LOWEST, HIGHEST, limit) for klass in range(len(HEAD_START))]


class Bounds:
    """Where claims of one pool begin. All instants are on the database's clock."""

    def __init__(self) -> None:
        self._low = [LOWEST] * len(HEAD_START)
        self._wide = True
        # Where claims ahead begin, and when one last looked at all that is due within the lead.
        self._ahead = [LOWEST] * len(HEAD_START)
        self._looked_us = 0

    def widen(self) -> None:
        """The next claim looks at everything: something was left behind."""
        self._wide = True

    def ranges(self, now_us: int, limit: int) -> list[Range]:
        """What to claim of what is due."""
        found = []
        for klass, low in enumerate(self._low):
            due = rank_floor(klass, now_us + SLACK_US)
            low = LOWEST if self._wide else min(low, rank_floor(klass, now_us - COMMIT_US))
            found.append(Range(klass, low, HIGHEST if self._wide else due, limit))
        return found

    def ahead(self, now_us: int, limit: int, lead_us: int) -> list[Range]:
        """What to claim of what will be due within the lead, or came due just now: behind what was claimed
        ahead before, and now and then all of it, because what is due later may be committed first.
        """
        if now_us - self._looked_us >= LOOK_AGAIN_US:
            self._ahead, self._looked_us = [LOWEST] * len(HEAD_START), now_us
        return [
            Range(
                klass,
                max(low, rank_floor(klass, now_us - COMMIT_US)),
                rank_floor(klass, now_us + lead_us),
                limit,
            )
            for klass, low in enumerate(self._ahead)
        ]

    def took_ahead(self, claimed: Iterable[tuple[int, int]]) -> None:
        """A claim ahead brought these (class, rank)."""
        for klass, rank in claimed:
            self._ahead[klass] = max(self._ahead[klass], rank + 1)

    def took(self, claimed: Iterable[tuple[int, int]], now_us: int, *, all_of_it: bool) -> None:
        """A claim that began at `now_us` brought these (class, rank); `all_of_it`: no more was due."""
        seen = [rank_floor(klass, now_us - COMMIT_US) for klass in range(len(HEAD_START))]
        low = [LOWEST] * len(HEAD_START) if self._wide else self._low
        if all_of_it:
            low = seen
        else:
            low = list(low)
            for klass, rank in claimed:
                low[klass] = max(low[klass], min(rank, seen[klass]))
        self._low, self._wide = low, False
