"""What `detent up` says when everything is there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from detent.cli.own import hint, own_command
from detent.cli.up import banner
from detent.runtime.config import Config


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a detent in it that the shell does not find."""
    program = tmp_path / ".venv" / "bin" / "detent"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return tmp_path


def test_the_program_is_called_by_its_name_where_the_shell_finds_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder / ".venv" / "bin"))
    monkeypatch.setattr(sys, "argv", [str(folder / ".venv/bin/detent"), "up"])
    assert own_command() == "detent"


@pytest.mark.parametrize("absolute", [False, True])
def test_elsewhere_it_is_called_by_the_short_way_from_here(
    absolute: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_as = str(folder / ".venv/bin/detent") if absolute else ".venv/bin/detent"
    monkeypatch.setattr(sys, "argv", [began_as, "up"])
    assert own_command() == ".venv/bin/detent"


def test_the_whole_path_is_told_where_the_way_from_here_is_longer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/detent", "up"])
    assert own_command() == "/opt/detent"


def test_a_program_in_the_current_folder_can_be_typed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / ".venv" / "bin")
    monkeypatch.setattr(sys, "argv", ["./detent", "up"])
    assert own_command() == "./detent"


def test_a_path_with_a_space_can_be_typed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["my tools/detent", "up"])
    assert own_command() == "'my tools/detent'"


def test_a_module_that_was_started_by_python_is_told_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(folder / "src/detent/__main__.py"), "up"])
    monkeypatch.setattr(sys, "executable", str(folder / ".venv/bin/python"))
    assert own_command() == ".venv/bin/python -m detent"


def test_a_command_to_type_next_names_the_server_that_this_one_was_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [".venv/bin/detent", "job", "run"])
    assert hint("job list") == ".venv/bin/detent job list"
    assert (
        hint("job list", "http://127.0.0.1:9000") == ".venv/bin/detent job list --url http://127.0.0.1:9000"
    )


def test_the_first_job_of_the_banner_can_be_typed_as_it_stands(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [".venv/bin/detent", "up"])
    assert "first job  .venv/bin/detent job create hello " in banner(Config(), 1.0)
    assert banner(Config(port=9000), 1.0).count(" --url http://127.0.0.1:9000\n") == 1
