"""Filling a page of a filtered list from bounded looks at an index."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from uuid import UUID

T = TypeVar("T")

LAST = UUID(int=(1 << 128) - 1)
SCAN = 2_000  # candidates that one statement may look at
LOOKS = 50  # statements that one page may cost


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """`next_before` is where the next page begins; None at the end of the list."""

    items: list[T]
    next_before: UUID | None


@dataclass(frozen=True, slots=True)
class Stretch(Generic[T]):
    """What one look found: the asked ones of `matched`; `end` is how far it looked, None to the end."""

    items: list[T]
    matched: int
    end: UUID | None


class Look(Protocol[T]):
    def __call__(self, before: UUID, scan: int, limit: int, skip: int) -> Awaitable[Stretch[T]]: ...


async def fill_page(
    look: Look[T],
    *,
    key: Callable[[T], UUID],
    exact: bool,
    before: UUID | None,
    limit: int,
    skip: int,
    scan: int = SCAN,
    looks: int = LOOKS,
) -> Page[T]:
    """Look until the page is full, the list ends, or the budget is spent."""
    items: list[T] = []
    at = LAST if before is None else before
    for _ in range(looks):
        wanted = limit - len(items)
        # One more than is shown: it tells whether there is a next page.
        width = skip + wanted + 1 if exact else max(scan, wanted + 1)
        found = await look(at, width, wanted + 1, skip)
        items.extend(found.items)
        if len(items) > limit:
            return Page(items[:limit], key(items[limit - 1]))
        if found.end is None:
            return Page(items, None)
        skip = max(0, skip - found.matched)
        at = found.end
    return Page(items, at)
