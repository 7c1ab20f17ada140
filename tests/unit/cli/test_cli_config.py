from __future__ import annotations

import json
import logging
from io import StringIO
from pathlib import Path

import pytest

from detent.cli.config import config
from detent.runtime import logs
from detent.runtime.config import SETTINGS, BadConfiguration, Config, environment_of, load, masked


def test_defaults_are_the_dataclass_and_say_so() -> None:
    loaded = load({}, {})
    assert loaded.config == Config()
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.config.server_url == "http://127.0.0.1:8642"


def test_a_flag_beats_the_environment_which_beats_the_default() -> None:
    environment = {"DETENT_PORT": "9000", "DETENT_SLOTS": "50", "DETENT_DATA": ""}
    loaded = load({"port": "9001", "slots": None, "imports": ()}, environment)
    assert (loaded.config.port, loaded.config.slots, loaded.config.data) == (9001, 50, Path(".detent"))
    assert loaded.sources["port"] == "flag"
    assert loaded.sources["slots"] == "DETENT_SLOTS"
    assert loaded.sources["data"] == "default"


def test_a_client_follows_the_port_unless_it_is_told_an_address() -> None:
    assert load({}, {"DETENT_PORT": "9000"}).config.server_url == "http://127.0.0.1:9000"
    told = load({}, {"DETENT_PORT": "9000", "DETENT_URL": "https://detent.example.org/"})
    assert told.config.server_url == "https://detent.example.org"


def test_all_problems_are_reported_together_with_what_would_be_right() -> None:
    environment = {"DETENT_PORT": "http", "DETENT_SLOTS": "0", "DETENT_LOG_LEVEL": "loud"}
    with pytest.raises(BadConfiguration) as refused:
        load({"database": "mysql://db", "imports": ("my tasks",), "heartbeat": "nan"}, environment)
    assert [error.field for error in refused.value.errors] == [
        "--database", "DETENT_PORT", "--import", "DETENT_SLOTS", "--heartbeat", "DETENT_LOG_LEVEL",
    ]  # fmt: skip
    assert "debug, info, warning, error" in refused.value.errors[-1].message
    assert "postgresql://" in refused.value.errors[0].message


def test_a_lease_shorter_than_two_heartbeats_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="at least twice the heartbeat of 10 s"):
        load({"lease": "15"}, {})
    assert load({"lease": "2", "heartbeat": "1"}, {}).config.lease == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "example.org", "192.168.1.4", "::"])
def test_only_loopback_addresses_are_served(host: str) -> None:
    with pytest.raises(BadConfiguration, match="loopback"):
        load({"host": host}, {})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_loopback_addresses_are_accepted(host: str) -> None:
    assert load({"host": host}, {}).config.host == host


def test_lists_come_from_repeated_flags_or_commas() -> None:
    assert load({}, {"DETENT_IMPORT": "a.b, c"}).config.imports == ("a.b", "c")
    assert load({"imports": ("x", "y,x")}, {}).config.imports == ("x", "y")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:secret@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:se:c@r/e#t@h/db", "postgresql://u:***@h/db"),
        ("postgresql://h/db?password=secret&x=1", "postgresql://h/db?password=***&x=1"),
        ("postgresql:///db?host=/run&port=5432", "postgresql:///db?host=/run&port=5432"),
    ],
)
def test_secrets_in_addresses_are_masked(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_shown_values_hold_no_password() -> None:
    shown = load({"database": "postgresql://u:secret@h/db"}, {}).shown()
    assert "secret" not in json.dumps(shown)


def test_a_child_reads_back_the_same_configuration() -> None:
    config = load(
        {"port": "9001", "imports": ("a", "b"), "slots": "7", "grace": "1.5", "data": "/d"}, {}
    ).config
    again = load({}, environment_of(config, "postgresql://h/db")).config
    assert again.database == "postgresql://h/db"
    for name in ("port", "imports", "slots", "grace", "data", "pools", "lease", "log_format"):
        assert getattr(again, name) == getattr(config, name), name


@pytest.fixture
def said() -> StringIO:
    return StringIO()


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> object:
    root = logging.getLogger()
    before = (root.handlers[:], root.level, logging.raiseExceptions)
    yield
    root.handlers[:], logging.raiseExceptions = before[0], before[2]
    root.setLevel(before[1])


def test_text_lines_name_the_role_and_indent_tracebacks(said: StringIO) -> None:
    logs.configure(Config(), "worker-2", said)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("detent").exception("a tick failed")
    first, *trace = said.getvalue().splitlines()
    assert " worker-2 " in first
    assert first.endswith("error: a tick failed")
    assert trace
    assert all(line.startswith("    ") for line in trace)


def test_json_lines_are_one_object_each(said: StringIO) -> None:
    logs.configure(Config(log_format="json"), "api", said)
    logging.getLogger("detent").warning("two\nlines %s", "ü")
    record = json.loads(said.getvalue())
    assert record["role"] == "api"
    assert record["level"] == "warning"
    assert record["message"] == "two\nlines ü"
    assert record["at"].endswith("Z")


def test_levels_below_the_configured_one_are_silent(said: StringIO) -> None:
    logs.configure(Config(log_level="error"), "api", said)
    logging.getLogger("detent").warning("hush")
    assert said.getvalue() == ""


def test_every_setting_can_be_tried_as_a_flag_of_config() -> None:
    given = {parameter.name for parameter in config.params}
    assert set(SETTINGS) <= given
