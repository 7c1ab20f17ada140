"""Identity: the same work has the same id, ids follow time, and an id says where its row is filed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import assume, example, given
from hypothesis import strategies as st

from detent.model.ids import (
    DAY_TRUE_WITHIN,
    SHARDS,
    day_true,
    execution_id,
    filed_day,
    first_id_of,
    milliseconds,
    new_incarnation_id,
    new_job_id,
    parse_id,
    schedule_key,
    shard_of,
)

CAUSES = ("schedule", "manual", "event", "backfill", "replay", "step")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
instants = st.timedeltas(timedelta(0), timedelta(days=84_000)).map(lambda since: EPOCH + since)
jobs = st.uuids()
causes = st.sampled_from(CAUSES)
keys = st.text(max_size=40)
identities = st.tuples(jobs, causes, keys)


@given(instants, identities)
def test_the_same_cause_has_the_same_execution(at: datetime, identity: tuple[UUID, str, str]) -> None:
    assert execution_id(at, *identity) == execution_id(at, *identity)


@given(instants, identities, identities)
def test_different_causes_have_different_executions(
    at: datetime, one: tuple[UUID, str, str], other: tuple[UUID, str, str]
) -> None:
    assume(one != other)
    assert execution_id(at, *one) != execution_id(at, *other)


@given(jobs, st.lists(st.tuples(st.integers(1, 9), instants), min_size=2, max_size=8, unique=True))
def test_each_instant_of_each_generation_has_its_own_key(
    job_id: UUID, decided: list[tuple[int, datetime]]
) -> None:
    names = {execution_id(at, job_id, "schedule", schedule_key(generation, at)) for generation, at in decided}
    assert len(names) == len(decided)


@given(instants, instants, identities, identities)
def test_executions_are_ordered_by_the_instant_they_are_filed_under(
    first: datetime, second: datetime, one: tuple[UUID, str, str], other: tuple[UUID, str, str]
) -> None:
    assume(milliseconds(first) < milliseconds(second))
    earlier, later = execution_id(first, *one), execution_id(second, *other)
    assert earlier < later
    assert earlier.bytes < later.bytes  # as PostgreSQL compares them
    assert str(earlier) < str(later)


@given(instants, identities)
@example(datetime(2026, 1, 1, tzinfo=UTC), (UUID(int=0), "manual", ""))
@example(datetime(2026, 1, 1, tzinfo=UTC) - timedelta(microseconds=1), (UUID(int=0), "manual", ""))
def test_an_execution_names_its_day_and_lies_within_that_days_partition(
    at: datetime, identity: tuple[UUID, str, str]
) -> None:
    name = execution_id(at, *identity)
    assert filed_day(name) == at.date()
    assert first_id_of(at.date()) <= name < first_id_of(at.date() + timedelta(days=1))


@given(instants, identities)
def test_an_execution_is_a_uuid_of_version_8(at: datetime, identity: tuple[UUID, str, str]) -> None:
    name = execution_id(at, *identity)
    assert (name.version, name.variant) == (8, "specified in RFC 4122")
    assert name.int >> 80 == milliseconds(at)


@given(instants, st.timedeltas(timedelta(days=-400), timedelta(days=400)))
def test_an_instant_is_filed_under_its_own_day_within_a_week_of_its_decision(
    decided: datetime, off: timedelta
) -> None:
    nominal = decided + off
    filed = day_true(nominal, decided)
    assert filed == (nominal if abs(off) <= DAY_TRUE_WITHIN else decided)
    assert abs(filed - decided) <= DAY_TRUE_WITHIN


@given(instants, st.timedeltas(-DAY_TRUE_WITHIN, DAY_TRUE_WITHIN), jobs, st.integers(1, 5))
def test_whenever_an_instant_is_decided_within_the_week_its_execution_is_the_same(
    nominal: datetime, late: timedelta, job_id: UUID, generation: int
) -> None:
    key = schedule_key(generation, nominal)
    names = {
        execution_id(day_true(nominal, decided), job_id, "schedule", key)
        for decided in (nominal, nominal + late)
    }
    assert len(names) == 1


@given(instants, instants)
def test_jobs_are_ordered_by_their_making(first: datetime, second: datetime) -> None:
    assume(milliseconds(first) < milliseconds(second))
    earlier, later = new_job_id(first), new_job_id(second)
    assert earlier < later
    assert earlier.bytes < later.bytes
    assert (earlier.version, earlier.variant) == (7, "specified in RFC 4122")
    assert earlier.int >> 80 == milliseconds(first)


def test_jobs_made_in_one_millisecond_differ() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert len({new_job_id(now) for _ in range(10_000)}) == 10_000
    assert len({new_incarnation_id() for _ in range(1_000)}) == 1_000


def test_jobs_are_spread_over_all_shards() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    counts = [0] * SHARDS
    for _ in range(64 * SHARDS):
        counts[shard_of(new_job_id(now))] += 1
    # 64 expected each; a count outside of this by chance is rarer than one run in a million.
    assert min(counts) > 10
    assert max(counts) < 150


@given(st.one_of(st.uuids(), st.uuids(version=4)))
def test_what_was_written_as_an_id_is_read_as_that_id(one: UUID) -> None:
    assert parse_id(str(one)) == one
    assert parse_id(str(one).upper()) == one


@given(st.uuids(), st.integers(0, 7))
def test_other_ways_to_write_a_uuid_are_refused(one: UUID, way: int) -> None:
    text = str(one)
    others = [
        one.hex,
        f"{{{text}}}",
        f"urn:uuid:{text}",
        f" {text}",
        f"{text}\n",
        text.replace("-", ""),
        f"{text[:8]}{text[9:]}-",
        text[:-1],
    ]
    assert parse_id(others[way]) is None


@given(st.text(max_size=60))
@example("")
@example("０" * 32)
@example("0_" * 16)
@example("00000000-0000-0000-0000-00000000000０")
@example("+0000000-0000-0000-0000-000000000000")
@example("0x000000-0000-0000-0000-000000000000")
def test_nothing_else_is_an_id(text: str) -> None:
    found = parse_id(text)
    assert found is None or str(found) == text.lower()


@given(st.from_regex(r"[0-9a-fA-F_x+ -]{30,40}", fullmatch=True))
def test_what_looks_much_like_an_id_is_one_only_when_it_is_written_as_one(text: str) -> None:
    found = parse_id(text)
    canonical = len(text) == 36 and all(
        (c == "-") == (n in (8, 13, 18, 23)) and c in "0123456789abcdefABCDEF-" for n, c in enumerate(text)
    )
    assert (found is not None) == canonical
