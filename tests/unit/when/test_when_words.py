from __future__ import annotations

from datetime import UTC, datetime

import pytest

from detent.when.rule import Every, Never, Once, cron_rule
from detent.when.words import in_words

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expr", "timezone", "sentence"),
    [
        ("0 9 * * *", "Europe/Berlin", "every day at 09:00 Europe/Berlin"),
        ("*/15 * * * *", "UTC", "every 15 minutes"),
        ("*/15 * * * *", "Asia/Kathmandu", "every 15 minutes, Asia/Kathmandu time"),
        ("* * * * *", "UTC", "every minute"),
        ("@hourly", "UTC", "every hour"),
        ("7 * * * *", "UTC", "every hour at minute 7"),
        ("0 9,17 * * mon-fri", "UTC", "every weekday at 09:00 and 17:00 UTC"),
        ("30 2 * * sat,sun", "UTC", "every Saturday and Sunday at 02:30 UTC"),
        ("0 0 1 * *", "UTC", "on day 1 of the month at 00:00 UTC"),
        ("0 0 29 2 *", "UTC", "on day 29 of February at 00:00 UTC"),
        ("0 0 1,15 * fri", "UTC", "on days 1 and 15 of the month and every Friday at 00:00 UTC"),
        ("0 0 1-7 * */7", "UTC", "every Sunday that falls on days 1 to 7 of the month at 00:00 UTC"),
        ("0 9 1,* * fri", "UTC", "every day at 09:00 UTC"),
        ("*/5 9-17 * * 1-5", "UTC", "every 5 minutes of hours 9 to 17, every weekday, UTC time"),
        ("0 9 * jan *", "UTC", "every day in January at 09:00 UTC"),
        ("5,25 1-4 * * *", "UTC", "every day at minutes 5 and 25 of hours 1 to 4 UTC"),
    ],
)
def test_a_cron_rule_reads_as_a_person_would_say_it(expr: str, timezone: str, sentence: str) -> None:
    assert in_words(cron_rule(expr, timezone)) == sentence


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        (1, "every second"),
        (60, "every minute"),
        (90, "every 1 minute and 30 seconds"),
        (900, "every 15 minutes"),
        (5400, "every 90 minutes"),
        (86_400, "every day"),
        (1_209_600, "every 2 weeks"),
        (1.5, "every 1.5 seconds"),
        (61, "every 1 minute and 1 second"),
    ],
)
def test_an_interval_reads_in_its_largest_unit(seconds: float, sentence: str) -> None:
    assert in_words(Every(seconds, NOON)) == sentence


def test_the_others_have_their_sentence_too() -> None:
    assert in_words(Once(NOON)) == "once at 2026-01-01T12:00:00.000Z"
    assert in_words(Never()) == "only when run by hand"
