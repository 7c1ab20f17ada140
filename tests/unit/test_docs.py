"""The pages say only what is there: files, commands, flags, settings, names and tests that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from detent.api import openapi
from detent.cli.main import root
from detent.cli.options import FLAGS
from detent.runtime.config import FLAG_NAMES, SETTINGS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
OURS = ("src/", "tests/", "docs/", "examples/", "bench/", ".ci/", "Makefile", "pyproject.toml")
# What a shell task finds in its environment, besides the settings.
OF_A_TASK = {"EXECUTION_ID", "JOB_ID", "ATTEMPT", "TOKEN", "SCHEDULED_FOR", "PAYLOAD"}

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")
_TEST = re.compile(r"\btest_\w+\b(?!\.py)")
_REGISTRY = re.compile(
    r"\b(pypi|pythonhosted|npmjs|yarnpkg|maven(\.apache)?|crates|rubygems|anaconda|docker|ghcr|quay)\.(org|com|io|net)\b"
)

page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def prose_of(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def inline_code(page: Path) -> Iterator[str]:
    return (found[1] for found in _INLINE.finditer(prose_of(page)))


def command_lines(page: Path) -> Iterator[str]:
    """Everything that a reader would type after a prompt and that starts our program."""
    for language, block in _FENCE.findall(page.read_text()):
        if language == "sh":
            lines = block.replace("\\\n", " ").splitlines()
            yield from (line.removeprefix(".venv/bin/") for line in lines)
    yield from inline_code(page)


@cache
def known_tests() -> frozenset[str]:
    text = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    return frozenset(re.findall(r"def (test_\w+)", text))


@cache
def words_of_the_source() -> frozenset[str]:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.sql"), *(ROOT / "tests").rglob("*.py")]
    return frozenset(
        re.findall(r"\w+", "".join(path.read_text() for path in files if path != Path(__file__)))
    )


@page
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    assert set(_TEST.findall(page.read_text())) - known_tests() == set()


@page
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = {word for code in inline_code(page) for word in code.split() if word.startswith(OURS)}
    linked = {link for link in _LINK.findall(prose_of(page)) if "://" not in link}
    missing = {name for name in named if not (ROOT / name).exists()}
    missing |= {link for link in linked if not (page.parent / link).exists()}
    assert missing == set()


@page
def test_every_command_and_flag_that_a_page_names_exists(page: Path) -> None:
    wrong = []
    for line in command_lines(page):
        if not line.startswith("detent "):
            continue
        words = shlex.split(line.replace("\\|", "|"), comments=True)
        command: click.Command | None = root
        rest = words[1:]
        while isinstance(command, click.Group) and rest:
            command = command.get_command(click.Context(command), rest.pop(0))
        if command is None:
            wrong.append(line)
            continue
        ours = rest[: rest.index("--")] if "--" in rest else rest
        known = {flag for param in command.params for flag in param.opts} | {"-h"}
        wrong += [f"{flag} in {line}" for flag in ours if re.match("--?[a-z]", flag) and flag not in known]
    assert wrong == []


@page
def test_every_name_in_code_is_a_name_of_the_source(page: Path) -> None:
    named = {code for code in inline_code(page) if re.fullmatch(r"[a-z]+(_[a-z]+)+", code)}
    assert named - words_of_the_source() == set()


@page
def test_every_variable_that_a_page_names_is_read(page: Path) -> None:
    known = {variable for variable, _ in SETTINGS.values()} | {f"DETENT_{name}" for name in OF_A_TASK}
    assert set(re.findall(r"DETENT_[A-Z_]+", page.read_text())) - known == set()


@page
def test_no_page_names_a_package_registry(page: Path) -> None:
    assert [line for line in page.read_text().splitlines() if _REGISTRY.search(line)] == []


def test_every_setting_is_told_with_its_variable() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    for name, (variable, _) in SETTINGS.items():
        assert f"`{variable}`" in text
        flag = FLAG_NAMES.get(name, "--" + name.replace("_", "-"))
        assert (f"`{flag}`" if name in FLAGS else f"`{flag} ") in text


def test_every_command_is_told() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    context = click.Context(root)
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        inner = command.list_commands(context) if isinstance(command, click.Group) else [""]
        for verb in inner:
            assert f"`detent {name} {verb}".rstrip() in text


def test_every_endpoint_is_told() -> None:
    text = (ROOT / "docs" / "http.md").read_text()
    for path, operations in openapi.document()["paths"].items():
        for method in operations:
            assert f"`{method.upper()} {path.removeprefix('/api/v1')}" in text


def test_the_readme_is_short_and_promises_what_is_true() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 200
    for promise in ("exactly-once scheduling", "at-least-once execution", "exactly-once recorded outcome"):
        assert promise in text


def test_every_figure_of_the_readme_was_measured() -> None:
    figure = re.compile(r"(?<![\w,.-])\d[\d,.-]*\d\b")
    section = (ROOT / "README.md").read_text().partition("## Measured")[2].partition("## ")[0]
    told = set(figure.findall(section))
    assert len(told) > 10
    assert told - set(figure.findall((ROOT / "docs" / "performance.md").read_text())) == set()
