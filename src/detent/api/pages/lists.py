"""`/jobs` and `/executions`: everything, page by page, newest first."""

from __future__ import annotations

from collections.abc import Iterable

from detent.api.pages.markup import Markup, el, join
from detent.api.pages.parts import quiet
from detent.api.pages.words import spaced


def content(title: str, where: str, statuses: Iterable[str], chosen: str | None, shown: Markup | None,
            cursor: str | None) -> Markup:  # fmt: skip
    body = shown or quiet("There is nothing of this kind.")
    older = f"{where}?{f'status={chosen}&' if chosen else ''}cursor={cursor}"
    more = el("p", el("a", "Older", href=older, rel="next"), class_="more") if cursor else None
    return join(
        el("h1", title),
        _choices(where, statuses, chosen),
        el("section", body, more, class_="card", aria_label=title),
    )


def _choices(where: str, statuses: Iterable[str], chosen: str | None) -> Markup:
    def choice(status: str | None, label: str) -> Markup:
        current = "page" if status == chosen else None
        address = where if status is None else f"{where}?status={status}"
        return el("li", el("a", label, href=address, aria_current=current))

    choices = [choice(None, "all"), *(choice(status, spaced(status)) for status in statuses)]
    return el("nav", el("ul", choices), aria_label="By status", class_="choices")
