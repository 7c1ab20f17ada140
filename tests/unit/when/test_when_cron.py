from __future__ import annotations

from time import perf_counter

import pytest

from detent.model.errors import InvalidInput
from detent.when.cron import LONGEST, NICKNAMES, parse_cron


def refusal(text: object) -> str:
    with pytest.raises(InvalidInput) as refused:
        parse_cron(text)  # type: ignore[arg-type]
    (error,) = refused.value.errors
    assert error.field == "cron"
    return error.message


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("*/15", (0, 15, 30, 45)),
        ("0/15", (0, 15, 30, 45)),
        ("44/15", (44, 59)),
        ("10-40/5", (10, 15, 20, 25, 30, 35, 40)),
        ("50-5/5", (0, 5, 50, 55)),
        ("55-4/4", (3, 55, 59)),
        ("5,1,5,3-4", (1, 3, 4, 5)),
        ("*/90", (0,)),
        ("007", (7,)),
        ("59-59", (59,)),
    ],
)
def test_minutes_are_read(text: str, values: tuple[int, ...]) -> None:
    assert parse_cron(f"{text} 0 * * *").minute.values == values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0", (0,)),
        ("7", (0,)),
        ("6,7", (0, 6)),
        ("fri-mon", (0, 1, 5, 6)),
        ("5-7", (0, 5, 6)),
        ("7-4", (0, 1, 2, 3, 4)),
        ("7-0", (0,)),
        ("0-7", (0, 1, 2, 3, 4, 5, 6)),
        ("Thu-Tue/3", (0, 4)),
        ("*/7", (0,)),
        ("1/2", (0, 1, 3, 5)),
        ("mOn,WED", (1, 3)),
        ("?", (0, 1, 2, 3, 4, 5, 6)),
    ],
)
def test_days_of_the_week_are_read(text: str, values: tuple[int, ...]) -> None:
    assert parse_cron(f"0 0 * * {text}").weekday.values == values


def test_months_and_hours_may_wrap_and_be_named() -> None:
    assert parse_cron("0 22-2 1 nov-Feb *").month.values == (1, 2, 11, 12)
    assert parse_cron("0 22-2 1 nov-Feb *").hour.values == (0, 1, 2, 22, 23)


def test_blanks_around_and_tabs_between_fields_do_not_matter() -> None:
    assert parse_cron("  0\t9  * * *\n").hour.values == (9,)


def test_nicknames_are_read_in_any_case() -> None:
    for nickname, meaning in NICKNAMES.items():
        plain, named = parse_cron(meaning), parse_cron(nickname.upper())
        assert (named.minute, named.hour, named.day) == (plain.minute, plain.hour, plain.day)
        assert (named.month, named.weekday) == (plain.month, plain.weekday)


def test_reboot_is_refused_with_what_to_write_instead() -> None:
    assert "'@daily'" in refusal("@reboot")


def test_every_as_a_nickname_points_to_the_field() -> None:
    assert "'every'" in refusal("@every 5m")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("60 * * * *", ["minute", "'60'", "0–59", "'*/15'"]),
        ("* 24 * * *", ["hour", "'24'", "0–23", "'9-17'"]),
        ("* * 32 * *", ["day of month", "'32'", "1–31", "'1,15'"]),
        ("* * * 13 *", ["month", "'13'", "1–12", "'jan'"]),
        ("* * * * 8", ["day of week", "'8'", "0–7", "'mon-fri'"]),
        ("* * * * Monday", ["day of week", "'Monday'"]),
        ("*/0 * * * *", ["minute", "'*/0'", "at least 1"]),
        ("1- * * * *", ["minute", "'1-'", "lacks a value"]),
        ("1,,2 * * * *", ["minute", "'1,,2'", "empty item"]),
        ("? * * * *", ["minute", "'?'", "day fields"]),
        ("1 ١ * * *", ["hour", "ASCII"]),
        ("0 0 30 2 *", ["day of month", "'30'", "never"]),
    ],
)
def test_a_refusal_names_the_field_the_text_and_what_would_be_right(text: str, names: list[str]) -> None:
    message = refusal(text)
    for name in names:
        assert name in message


@pytest.mark.parametrize(
    ("text", "found"),
    [("", "no fields"), ("daily", "1 field"), ("0 0 *", "3 fields"), ("* " * 8, "8 fields")],
)
def test_a_wrong_number_of_fields_is_counted(text: str, found: str) -> None:
    assert refusal(text).startswith(found)
    assert "5 are needed" in refusal(text)


@pytest.mark.parametrize("text", ["0 0 32W * *", "0 0 * * 1#6", "0 0 * * 5L/3", "0 0 LL * *", "L * * * *"])
def test_nonsense_around_the_specials_is_refused(text: str) -> None:
    assert "write" in refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        "0 0 30,31 feb ?",
        "0 0 31 4 */2",
        "0 0 30W 2 *",
        "0 0 L-29 2 ?",
        "0 0 0 29 2 ? 2026",
        "0 0 H(29-31) H *",
    ],
)
def test_what_can_never_fire_is_refused(text: str) -> None:
    assert "never" in refusal(text)


def test_an_impossible_day_beside_a_weekday_still_fires_on_the_weekday() -> None:
    assert not parse_cron("0 0 31 2 0").both_days


@pytest.mark.parametrize(
    "text",
    [
        "1," * 500_000 + "1 * * * *",
        "*" * 1_000_000,
        "@" * 300,
        " " * 100_000 + "* * * * *",
        "0-59/1," * 30 + "x * * * *",
        "9" * 240 + " * * * *",
        "*/" + "9" * 240 + "x * * * *",
        "1-" * 120,
        "0 0 " + "31W," * 60 + "31W 2 *",
        "0 0 L-30W,L-29W,30W,31W 2 *",
        "0 0 0 30 2 ? " + "1970-2199," * 20 + "1970",
        "0 0 *,H(29-31) H * H#1",
        "0 0 H(29-31) H ? H 2023-2025",
        "H" * 240 + " * * * *",
        "H(" * 100 + " * * * *",
        "0 0 * * " + "mon#6," * 30,
        "\x00 * * * *",
        "\ud800 * * * *",
        "0\u00a09 * * *",
        "１ * * * *",
    ],
)
def test_hostile_text_is_refused_within_ten_milliseconds(text: str) -> None:
    best = 1.0
    for _ in range(3):  # the machine may be busy: one undisturbed try is enough
        began = perf_counter()
        message = refusal(text)
        best = min(best, perf_counter() - began)
    assert best < 0.010
    assert len(message) < 500


@pytest.mark.parametrize("value", [None, 5, True, ["* * * * *"], {"a": 1}, b"* * * * *"])
def test_what_is_not_text_is_refused(value: object) -> None:
    assert "string" in refusal(value)


def test_the_longest_text_is_the_limit() -> None:
    longest = "0" * (LONGEST - 8) + " * * * *"
    assert parse_cron(longest).minute.values == (0,)
    assert "256" in refusal("0" + longest)


def test_expressions_with_the_same_text_are_equal_and_hash_alike() -> None:
    assert parse_cron("0 9 * * *") == parse_cron(" 0 9 * * * ")
    assert len({parse_cron("0 9 * * *"), parse_cron(" 0 9 * * * "), parse_cron("0 8 * * *")}) == 2
