"""Pages lead through a list once, whatever the list, the filter and the size of a page."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from detent.api.body import Query
from detent.api.paging import cursor_of, ledger_cursor_of, ledger_place_of, place_of
from detent.model.errors import InvalidInput
from detent.model.ids import parse_id
from detent.store.listing import Page, Stretch, fill_page

EARLIEST, LATEST = datetime(1970, 1, 2), datetime(9999, 1, 1)  # noqa: DTZ001 - a zone comes on top
ids = st.integers(0, (1 << 128) - 2).map(lambda n: UUID(int=n))


@dataclass
class Asked:
    """As much of a request as a query is read from."""

    query: str

    @property
    def scope(self) -> dict[str, bytes]:
        return {"query_string": self.query.encode()}


def query(text: str, *known: str) -> Query:
    return Query(cast(Any, Asked(text)), *known)


@dataclass
class Listing:
    """A list in memory, looked at as the store looks at an index: bounded stretches, newest first."""

    items: list[UUID]
    passes: frozenset[UUID]
    looks: int = 0

    async def look(self, before: UUID, scan: int, limit: int, skip: int) -> Stretch[UUID]:
        self.looks += 1
        candidates = [item for item in self.items if item < before][:scan]
        matching = [item for item in candidates if item in self.passes]
        end = candidates[-1] if len(candidates) >= scan else None
        return Stretch(matching[skip : skip + limit], len(matching), end)

    def page(self, before: UUID | None, limit: int, skip: int, scan: int, looks: int) -> Page[UUID]:
        exact = set(self.items) <= self.passes
        return asyncio.run(
            fill_page(
                self.look,
                key=lambda item: item,
                exact=exact,
                before=before,
                limit=limit,
                skip=skip,
                scan=scan,
                looks=looks,
            )
        )


@st.composite
def listings(draw: st.DrawFn) -> Listing:
    items = sorted(draw(st.sets(ids, max_size=40)), reverse=True)
    if draw(st.booleans()):
        return Listing(items, frozenset(items))
    return Listing(items, frozenset(item for item in items if draw(st.booleans())))


@given(listings(), st.integers(1, 12), st.integers(1, 15), st.integers(1, 5))
def test_pages_one_after_another_are_the_whole_list_once(
    listing: Listing, limit: int, scan: int, looks: int
) -> None:
    found: list[UUID] = []
    before: UUID | None = None
    while True:
        page = listing.page(before, limit, 0, scan, looks)
        assert len(page.items) <= limit
        found += page.items
        if page.next_before is None:
            break
        assert before is None or page.next_before < before, "each page goes further"
        before = page.next_before
    assert found == [item for item in listing.items if item in listing.passes]


@given(listings(), st.integers(1, 12), st.integers(0, 45), st.integers(1, 15))
def test_skipping_is_the_same_as_reading_over(listing: Listing, limit: int, skip: int, scan: int) -> None:
    page = listing.page(None, limit, skip, scan, looks=1_000)
    passing = [item for item in listing.items if item in listing.passes]
    assert page.items == passing[skip : skip + limit]
    assert (page.next_before is None) == (len(passing) <= skip + limit)


@given(listings(), st.integers(1, 12), st.integers(1, 15), st.integers(1, 5))
def test_a_page_costs_no_more_looks_than_allowed(listing: Listing, limit: int, scan: int, looks: int) -> None:
    listing.page(None, limit, 0, scan, looks)
    assert listing.looks <= looks


@given(ids)
def test_a_cursor_says_where_a_page_begins(key: UUID) -> None:
    place = place_of(query(f"cursor={cursor_of(key)}", "cursor"))
    assert place.before == key


@given(
    st.datetimes(EARLIEST, LATEST, timezones=st.just(UTC)),
    st.integers(0, 2**31 - 1),
)
def test_a_cursor_of_the_ledger_says_where_a_page_begins(at: datetime, generation: int) -> None:
    _, place = ledger_place_of(query(f"cursor={ledger_cursor_of(at, generation)}", "cursor"))
    assert place == (at, generation)


@given(st.text("ABCwxyz0189-_=+/.%é", max_size=40), st.sampled_from(["cursor", "limit", "page"]))
def test_any_text_is_a_place_or_is_refused(text: str, name: str) -> None:
    for read in (place_of, ledger_place_of):
        asked = query(f"{name}={text}", "cursor", "limit", "page")
        read(asked)
        try:
            asked.done()
        except InvalidInput as refusal:
            assert {error.field for error in refusal.errors} <= {name, *_names(text)}


def _names(text: str) -> set[str]:
    """What a query is taken to be when its value has a sign of its own."""
    return {"page"} if "=" in text else set()


@given(ids)
def test_an_id_is_read_as_it_is_written(key: UUID) -> None:
    assert parse_id(str(key)) == parse_id(str(key).upper()) == key


@given(st.text("0123456789abcdefABCDEF-{}urn:", max_size=50))
def test_no_text_but_a_plain_id_is_one(text: str) -> None:
    found = parse_id(text)
    assert found is None or str(found) == text.lower()
