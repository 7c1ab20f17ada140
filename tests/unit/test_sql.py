"""The loader of named SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.store.sql import Queries


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.sql").write_text(text)
    return folder


def test_statements_are_found_by_name_as_attribute_and_item(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        a="-- About a.\n\n-- name: one\n-- It says one.\nselect 1;\n\n-- name: two\n-- It says two.\n"
        "-- In two sentences.\nselect 2 -- why\n  + 0;\n",
        b="-- name: three\n-- It says three.\nselect 3\n",
    )
    queries = Queries.load(folder)
    assert list(queries) == ["one", "two", "three"]
    assert queries.one == "/* one */\n-- It says one.\nselect 1"
    assert queries["two"] == queries.two
    assert queries.two.endswith("select 2 -- why\n  + 0")
    assert queries.three.endswith("select 3")


def test_an_unknown_name_is_an_error_that_names_it(tmp_path: Path) -> None:
    queries = Queries.load(tmp_path)
    with pytest.raises(AttributeError, match="no query is named nothing"):
        _ = queries.nothing
    with pytest.raises(KeyError):
        _ = queries["nothing"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("select 1;\n-- name: one\n-- Says.\nselect 1", "a.sql: text before the first name"),
        ("-- name: one\n-- Says.\nselect 1\n-- name: one\n-- Says.\nselect 2", "one is there twice"),
        ("-- name: one\nselect 1", "one does not say what it does"),
        ("-- name: one\n-- Says.\n\n", "one has no statement"),
        ("-- name: one\n", "one does not say what it does"),
        ("-- name: \n-- Says.\nselect 1", "'' is not a name"),
        ("-- name: One-Two\n-- Says.\nselect 1", "'One-Two' is not a name"),
    ],
)
def test_a_malformed_file_is_refused_when_it_is_loaded(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Queries.load(write(tmp_path, a=text))


def test_one_name_in_two_files_is_refused(tmp_path: Path) -> None:
    text = "-- name: one\n-- Says.\nselect 1"
    with pytest.raises(ValueError, match=r"b\.sql: one is there twice"):
        Queries.load(write(tmp_path, a=text, b=text))


def test_the_programs_own_statements_load() -> None:
    assert "server_facts" in list(Queries.load())
