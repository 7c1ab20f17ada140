"""Instants and spans of time as people say them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from detent.api.pages import times

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 ms"),
        (0.0124, "12 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (1.24, "1.2 s"),
        (9.96, "10 s"),
        (34, "34 s"),
        (59.7, "1 min"),
        (184, "3 min 4 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86_400 * 3 + 3600 * 4, "3 d 4 h"),
        (86_400 * 4000, "4,000 d"),
        (-2, "−2.0 s"),
    ],
)
def test_spans_in_words(seconds: float, said: str) -> None:
    assert times.span(timedelta(seconds=seconds)) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "now"),
        (-0.4, "now"),
        (34, "in 34 s"),
        (-34, "34 s ago"),
        (184, "in 3 min 4 s"),
        (59 * 60 + 33, "in 59 min"),
        (-86_400 * 43 - 7 * 3600, "43 d ago"),
    ],
)
def test_how_far_from_now(seconds: float, said: str) -> None:
    assert times.relative(NOW + timedelta(seconds=seconds), NOW) == said


def test_what_should_have_happened_is_overdue() -> None:
    assert times.coming(NOW + timedelta(seconds=5), NOW) == "in 5 s"
    assert times.coming(NOW - timedelta(seconds=1), NOW) == "1 s ago"
    assert times.coming(NOW - timedelta(minutes=3), NOW) == "overdue by 3 min"


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (NOW, ">12:00:00<"),
        (NOW + timedelta(days=1), ">Mon 2 Mar 12:00:00<"),
        (NOW + timedelta(days=365), ">Mon 1 Mar 2027 12:00:00<"),
    ],
)
def test_an_instant_names_its_day_unless_it_is_today(at: datetime, shown: str) -> None:
    html = times.clock(at, NOW)
    assert shown in html
    assert f'datetime="{at:%Y-%m-%dT%H:%M:%S}.000Z"' in html


def test_today_is_the_zones_own() -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    late = NOW + timedelta(hours=4)  # the next day there
    assert ">Mon 2 Mar 01:00:00<" in times.clock(late, NOW, tokyo)
    assert ">21:00:00<" in times.clock(NOW, NOW, tokyo)
