"""What must hold between the answers about one rule, and for any text a stranger may send."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from detent.model.errors import InvalidInput
from detent.when.cron import parse_cron
from detent.when.every import parse_duration
from detent.when.instant import format_instant, parse_instant
from detent.when.misfire import catch_up
from detent.when.rule import Bounded, Every, Once, Rule, count_fires, cron_rule, fires, last_fire, next_fire
from detent.when.words import in_words
from detent.when.zone import zone

MICROSECOND = timedelta(microseconds=1)
INSTANTS = st.datetimes(datetime(2008, 1, 1), datetime(2034, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))  # noqa: DTZ001
SOME_FIELDS = [
    ["0", "30", "*", "*/20", "5,35", "59", "15/15", "20 10", "*/13 5-7", "* 0"],
    ["0", "1", "2", "*", "1-3", "23", "*/6", "22-2"],
    ["*", "1", "29-31", "?", "*/2", "13", "1-7", "L", "LW,1W", "L-2", "15W,15"],
    ["*", "*", "3", "oct-apr", "2,3,4"],
    ["*", "?", "sun", "fri-mon", "*/2", "1-5", "fri#2", "1L,3#5"],
]
ZONES = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Havana", "Africa/Casablanca"]


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    kind = draw(st.sampled_from(["cron", "cron", "cron", "cron", "every", "once"]))
    if kind == "every":
        seconds = draw(st.sampled_from([60, 77.7, 900, 3600, 86_400, 1_000_000]))
        return Every(seconds, draw(INSTANTS))
    if kind == "once":
        return Once(draw(INSTANTS))
    text = " ".join(draw(st.sampled_from(values)) for values in SOME_FIELDS)
    bounds = draw(st.sampled_from([None, None, "start", "end", "both"]))
    gap, fold = (
        draw(st.sampled_from(["next_valid", "skip"])),
        draw(st.sampled_from(["first", "second", "both"])),
    )
    rule = cron_rule(text, draw(st.sampled_from(ZONES)), gap, fold)
    if bounds is None:
        return rule
    start = draw(INSTANTS) if bounds != "end" else None
    return Bounded(rule, start, draw(INSTANTS) if bounds != "start" else None)


SPANS = st.sampled_from([0, 1, 59, 3_600, 86_400, 3 * 86_400, 40 * 86_400]).flatmap(
    lambda top: st.integers(0, top).map(lambda seconds: timedelta(seconds=seconds))
)


def listed(rule: Rule, after: datetime, through: datetime) -> list[datetime]:
    return list(takewhile(lambda at: at <= through, fires(rule, after)))


@settings(max_examples=200, deadline=None)
@given(rule=rules(), after=INSTANTS, span=SPANS)
def test_last_and_count_agree_with_walking(rule: Rule, after: datetime, span: timedelta) -> None:
    all_of_them = listed(rule, after, after + span)
    assert count_fires(rule, after, after + span) == len(all_of_them)
    assert last_fire(rule, after, after + span) == (all_of_them[-1] if all_of_them else None)


@settings(max_examples=150, deadline=None)
@given(rule=rules(), after=INSTANTS)
def test_asking_again_from_each_fire_gives_the_same_fires(rule: Rule, after: datetime) -> None:
    walked = list(islice(fires(rule, after), 12))
    assert all(one < other for one, other in pairwise(walked))
    at: datetime | None = after
    for expected in walked:
        assert at is not None
        at = next_fire(rule, at)
        assert at == expected
        assert next_fire(rule, at - MICROSECOND) == at


@settings(max_examples=200, deadline=None)
@given(rule=rules(), start=INSTANTS, outage=SPANS)
def test_a_catch_up_decides_about_every_instant_once(rule: Rule, start: datetime, outage: timedelta) -> None:
    due = next_fire(rule, start)
    if due is None:
        return
    now = due + outage
    passed = [due, *listed(rule, due, now)]
    decided = catch_up(rule, due, now)
    assert decided.fire_at == passed[-1]
    assert decided.skipped_count == len(passed) - 1
    skipped = passed[:-1]
    assert decided.skipped_from == (skipped[0] if skipped else None)
    assert decided.skipped_through == (skipped[-1] if skipped else None)
    assert decided.next_at == next_fire(rule, now)
    assert decided.next_at is None or decided.next_at > now


@settings(max_examples=150, deadline=None)
@given(rule=rules())
def test_every_rule_has_one_sentence(rule: Rule) -> None:
    sentence = in_words(rule)
    assert sentence == in_words(rule)
    assert len(sentence) >= 8
    assert "\n" not in sentence
    assert "  " not in sentence
    assert sentence == sentence.strip()


CRON_LIKE = st.text(alphabet="0123456789*/-,?LWH#@ \tjanfebmonsu()", max_size=40)


@settings(max_examples=300, deadline=None)
@given(text=CRON_LIKE | st.text(max_size=300))
def test_any_text_is_an_expression_that_fires_or_is_refused_by_name(text: str) -> None:
    try:
        parse_cron(text)
    except InvalidInput as refused:
        assert [error.field for error in refused.errors] == ["cron"]
        assert len(refused.errors[0].message) < 500
        return
    assert next_fire(cron_rule(text), datetime(2026, 1, 1, tzinfo=UTC)) is not None


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=80))
def test_any_text_is_a_zone_a_duration_or_an_instant_or_is_refused(text: str) -> None:
    for read in (zone, lambda t: parse_duration("delay", t), lambda t: parse_instant("from", t)):
        try:
            read(text)
        except InvalidInput as refused:
            assert refused.errors[0].message


@given(at=INSTANTS)
def test_an_instant_survives_the_wire_to_the_millisecond(at: datetime) -> None:
    assert parse_instant("at", format_instant(at)) == at.replace(microsecond=at.microsecond // 1000 * 1000)
