"""The pieces that pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from detent.api.pages import words
from detent.api.pages.markup import Child, Markup, el, join, terminal_text

SHOWN_CHARACTERS = 16_384


@dataclass(frozen=True, slots=True)
class Column:
    """`label` heads the column, and names the value where a narrow screen shows rows as cards."""

    label: str
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """`key` lets a refreshed page find the row again."""

    key: str
    cells: tuple[Child, ...]


def table(caption: str, columns: Sequence[Column], rows: Iterable[Row]) -> Markup:
    """Roles are spelled out: a narrow screen lays rows out as cards, and they stay a table for readers."""
    head = [el("th", one.label, scope="col", role="columnheader", class_=one.kind) for one in columns]
    body = [
        el(
            "tr",
            [
                el(
                    "td",
                    el("div", cell, class_="cell"),
                    role="cell",
                    data_label=column.label,
                    class_=column.kind,
                )
                for column, cell in zip(columns, row.cells, strict=True)
            ],
            role="row",
            id=row.key,
        )
        for row in rows
    ]
    return el(
        "div",
        el(
            "table",
            el("caption", caption, class_="unseen"),
            el("thead", el("tr", head, role="row"), role="rowgroup"),
            el("tbody", body, role="rowgroup"),
            role="table",
        ),
        class_="scroll",
    )


def section(title: str, *content: Child, aside: Child = None, kind: str | None = None) -> Markup:
    label = f"{'-'.join(title.lower().split())}-title"
    head = el("div", el("h2", title, id=label), aside, class_="head")
    return el("section", head, content, aria_labelledby=label, class_=f"card {kind or ''}".strip())


def badge(status: str, shown: str | None = None) -> Markup:
    return el("span", shown or words.spaced(status), class_=f"badge {words.tone(status)}")


def name(value: str) -> Markup:
    """A name that somebody chose: isolated, so that its direction of writing stays its own."""
    return el("bdi", value, class_="name", title=value if len(value) > 40 else None)


def job_link(job_id: UUID, value: str | None) -> Markup:
    shown = name(value) if value is not None else el("code", short(job_id))
    return el("a", shown, href=f"/jobs/{job_id}")


def execution_link(execution_id: UUID, shown: Child = None) -> Markup:
    return el("a", shown or el("code", short(execution_id)), href=f"/executions/{execution_id}")


def short(one: UUID) -> str:
    """Enough of an id to tell it from its neighbours: the end, where it is random."""
    return f"…{str(one)[-8:]}"


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """A list of facts; those without a value are left out."""
    shown = [
        el("div", el("dt", label), el("dd", value))
        for label, value in pairs
        if value is not None and value != ""
    ]
    return el("dl", shown, class_="facts")


def block(value: str, label: str, *, end: bool = False) -> Markup:
    """Text of any length as it was written; the beginning of it, or its end. Can be scrolled by keyboard."""
    value = terminal_text(value)
    cut = len(value) > SHOWN_CHARACTERS
    shown = (value[-SHOWN_CHARACTERS:] if end else value[:SHOWN_CHARACTERS]) if cut else value
    which = "last" if end else "first"
    note = (
        el("p", f"The {which} {SHOWN_CHARACTERS:,} of {len(value):,} characters.", class_="quiet")
        if cut
        else None
    )
    # A browser drops a line break right behind the opening tag: one of ours may go.
    return join(note, el("pre", "\n", shown, tabindex=0, role="region", aria_label=label))


def quiet(value: str) -> Markup:
    return el("p", value, class_="quiet")


def dash() -> Markup:
    return join(el("span", "–", class_="quiet none", aria_hidden="true"), el("span", "none", class_="unseen"))
