from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from detent.when.marks import mark, skipped
from detent.when.rule import Every, cron_rule, fires


@pytest.mark.parametrize(
    ("text", "zone", "fold", "start", "marks"),
    [
        ("30 2 * * *", "Europe/Berlin", "both", "2026-10-24T12:00:00Z",
         ["first of two, clocks go from 03:00 back to 02:00", "second of two, clocks go from 03:00 back to 02:00", ""]),
        ("0 2,3 * * *", "Europe/Berlin", "first", "2026-03-28T12:00:00Z", ["", "", ""]),
        ("15 2,3 * * *", "Europe/Berlin", "first", "2026-03-28T12:00:00Z",
         ["in place of 02:15, clocks go from 02:00 to 03:00", "", ""]),
        ("15 2 * * *", "Australia/Lord_Howe", "first", "2025-10-04T12:00:00Z",
         ["in place of 02:15, clocks go from 02:00 to 02:30", ""]),
        ("0 12 * * *", "Pacific/Apia", "first", "2011-12-29T23:00:00Z",
         ["in place of 12:00, clocks go from 00:00 to 2011-12-31 00:00", ""]),
        ("0 0 * * *", "America/Havana", "first", "2025-11-01T12:00:00Z",
         ["first of two, clocks go from 01:00 back to 00:00", ""]),
        ("*/30 * * * *", "Europe/Berlin", "first", "2026-03-29T00:10:00Z", ["", "", ""]),
        ("30 1 * * *", "UTC", "first", "2026-03-29T00:10:00Z", ["", ""]),
    ],
)  # fmt: skip
def test_an_instant_that_daylight_saving_touched_says_so(
    text: str, zone: str, fold: str, start: str, marks: list[str]
) -> None:
    rule = cron_rule(text, zone, fold=fold)
    found = islice(fires(rule, datetime.fromisoformat(start)), len(marks))
    assert [mark(rule, at) for at in found] == marks


def test_what_the_policy_skip_drops_is_told() -> None:
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
    rule = cron_rule("30 2 * * *", "Europe/Berlin", gap="skip")
    told = list(skipped(rule, start, end))
    assert [at for at, _ in told] == [
        datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2027, 3, 28, 1, tzinfo=UTC),
    ]  # fmt: skip
    assert {what for _, what in told} == {"skipped 02:30, clocks go from 02:00 to 03:00"}
    assert list(skipped(cron_rule("30 2 * * *", "Europe/Berlin"), start, end)) == []
    assert list(skipped(cron_rule("30 4 * * *", "Europe/Berlin", gap="skip"), start, end)) == []


def test_intervals_have_no_marks() -> None:
    at = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert mark(Every(60, at - timedelta(minutes=1)), at) == ""
