from __future__ import annotations

import struct
import zoneinfo
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from detent.model.errors import InvalidInput
from detent.when.zone import FIRST_YEAR, _load, stretches, year_start, zone, zone_names


def refusal(name: object) -> str:
    with pytest.raises(InvalidInput) as refused:
        zone(name)  # type: ignore[arg-type]
    (error,) = refused.value.errors
    assert error.field == "timezone"
    return error.message


def test_a_zone_is_loaded_once() -> None:
    assert zone("Europe/Berlin") is zone("Europe/Berlin")
    assert zone("Europe/Berlin").key == "Europe/Berlin"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Europe/Berlim", "Europe/Berlin"),
        ("Germany/Berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("America/New York", "America/New_York"),
        ("kathmando", "Asia/Kathmandu"),
        ("utc", "UTC"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_one_that_was_meant(name: str, meant: str) -> None:
    assert f"'{meant}'" in refusal(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "..", "../../etc/passwd", "/etc/localtime", "Europe/../Europe/Berlin", "Europe/Berlin\x00",
        "Europe/Berlin\n", " Europe/Berlin", "localtime", "posixrules", "x" * 1_000_000, "\ud800", "Europe",
        "C:\\",
    ],
)  # fmt: skip
def test_hostile_names_never_reach_the_file_system(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    zone_names()

    def untouchable(_: str) -> None:
        raise AssertionError("a name that is not in the database was looked up")

    monkeypatch.setattr("detent.when.zone._load", untouchable)
    assert len(refusal(name)) < 500


def test_what_is_not_text_is_refused() -> None:
    assert "IANA" in refusal(5)
    assert "IANA" in refusal(["UTC"])


def offset_changes(name: str) -> list[int]:
    """The instants since 1970 at which the database's own file (TZif, its 64-bit part) changes the offset."""
    data = files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    utc, std, leap, times, types, chars = struct.unpack(">6l", data[20:44])
    data = data[44 + times * 5 + types * 6 + chars + leap * 8 + std + utc :]
    _, _, _, times, types, _ = struct.unpack(">6l", data[20:44])
    at = struct.unpack(f">{times}q", data[44 : 44 + times * 8])
    indexes = data[44 + times * 8 : 44 + times * 9]
    offsets = [struct.unpack(">l", data[44 + times * 9 + i * 6 :][:4])[0] for i in range(types)]
    return [at[i] for i in range(1, times) if at[i] >= 0 and offsets[indexes[i]] != offsets[indexes[i - 1]]]


def test_no_zone_changes_its_clock_twice_within_six_days() -> None:
    close = [
        (name, second)
        for name in sorted(zone_names())
        for first, second in pairwise(offset_changes(name))
        if second - first < 6 * 86_400
    ]
    assert close == []


@pytest.mark.parametrize(
    "name",
    [
        "Europe/Berlin",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Asia/Gaza",
        "Africa/Casablanca",
        "America/Recife",
    ],
)
def test_stretches_meet_exactly_where_the_database_changes_the_offset(name: str) -> None:
    # What comes after the last change in the list is a rule in words, which the sweep of every zone looks at.
    until = min(year_start(2037), max(offset_changes(name)) + 1)
    found = list(stretches(name, 0, until))
    assert [s.start for s in found if s.before != s.offset and s.start > 0] == [
        at for at in offset_changes(name) if 0 < at < until
    ]
    assert found[0].start == year_start(FIRST_YEAR)
    for one, other in pairwise(found):
        assert (one.end, one.after, one.offset) == (other.start, other.offset, other.before)
    for stretch in found:
        for second in (stretch.start, stretch.end - 1):
            offset = datetime.fromtimestamp(second, zone(name)).utcoffset()
            assert offset is not None
            assert offset.total_seconds() == stretch.offset


def test_nothing_is_asked_outside_the_years_covered() -> None:
    assert list(stretches("Europe/Berlin", -(10**10), 0)) == []
    assert list(stretches("Europe/Berlin", year_start(2200), 10**11)) == []
    assert next(stretches("Europe/Berlin", -(10**10), 10)).start == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Europe/Kiev", "Europe/Kyiv"),
        ("Asia/Calcutta", "Asia/Kolkata"),
        ("America/Godthab", "America/Nuuk"),
        ("US/Pacific", "America/Los_Angeles"),
    ],
)
def test_a_renamed_zone_is_known_by_both_names(old: str, new: str) -> None:
    assert list(stretches(old, 0, year_start(2038))) == list(stretches(new, 0, year_start(2038)))


def test_rules_are_those_of_the_package_whatever_the_system_has(tmp_path: Path) -> None:
    (tmp_path / "Europe").mkdir()
    tokyo = files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes()
    (tmp_path / "Europe" / "Berlin").write_bytes(tokyo)
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([tmp_path])
    try:
        told = ZoneInfo.no_cache("Europe/Berlin").utcoffset(datetime(2026, 1, 1))  # noqa: DTZ001
        assert told == timedelta(hours=9), "the system says so"
        ours = _load.__wrapped__("Europe/Berlin").utcoffset(datetime(2026, 1, 1))  # noqa: DTZ001
        assert ours == timedelta(hours=1)
    finally:
        zoneinfo.reset_tzpath(before)


def test_the_day_that_apia_skipped_is_a_gap_of_a_day() -> None:
    (change,) = [
        s for s in stretches("Pacific/Apia", year_start(2011), year_start(2012)) if s.offset == 14 * 3600
    ]
    assert datetime.fromtimestamp(change.start, UTC) == datetime(2011, 12, 30, 10, tzinfo=UTC)
    assert change.offset - change.before == 86_400
