"""What all pages have in common: the frame, the headers, and how a page fails."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
from litestar import Response

from detent import __version__
from detent.api.body import AnyRequest
from detent.api.pages.markup import Child, Markup, document, el, join
from detent.api.problem import answer
from detent.model.errors import NotFound

REFRESH_SECONDS = 5
FOLDER = Path(__file__).parent
KINDS = {"style.css": "text/css", "refresh.js": "text/javascript", "icon.svg": "image/svg+xml"}
FILES = {name: (FOLDER / name).read_bytes() for name in KINDS}
_VERSIONS = {name: hashlib.sha256(data).hexdigest()[:12] for name, data in FILES.items()}

SAFE = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_TITLES = {
    403: "Not from here",
    404: "Nothing here",
    503: "The store cannot be reached",
}


def page(
    title: str,
    *content: Child,
    here: str | None = None,
    status: int = 200,
    refresh: bool = True,
    raw: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response[bytes]:
    """A whole page. `here` is its place in the menu, `raw` the address of the same as JSON."""
    root = el(
        "html",
        _head(title, refresh),
        el(
            "body",
            el("a", "Skip to content", href="#content", class_="skip"),
            _header(here),
            el("main", content, id="content", tabindex=-1),
            _footer(raw),
        ),
        lang="en",
        data_refresh=REFRESH_SECONDS if refresh else None,
    )
    fresh = {**SAFE, "cache-control": "no-store", **(headers or {})}
    return Response(document(root), status_code=status, media_type="text/html", headers=fresh)


def failed(request: AnyRequest, error: Exception) -> Response[bytes]:
    """The answer to a page that failed: what the API would say, for people."""
    plain = answer(request, error)
    status = plain.status_code or 500
    detail = str(msgspec.json.decode(plain.content)["detail"])
    shown = el("p", detail[:1].upper() + detail[1:] + ".", class_="lead")
    more: Child = None
    if status == 404:
        once = "It may have been there once: history is kept for a number of days. "
        back = el("a", "Back to the overview", href="/")
        more = el("p", once if isinstance(error, NotFound) else None, back)
    elif status == 503:
        more = el(
            "p", "Schedules are safe: what falls due meanwhile is caught up. This page tries again by itself."
        )
    title = _TITLES.get(status, "Something went wrong")
    return page(
        title,
        el("section", el("p", status, class_="code"), el("h1", title), shown, more, class_="card failure"),
        status=status,
        refresh=status >= 500,
        headers={name: str(value) for name, value in plain.headers.items()},
    )


def file_answer(name: str) -> Response[bytes]:
    forever = {**SAFE, "cache-control": "public, max-age=31536000, immutable"}
    return Response(FILES[name], media_type=KINDS[name], headers=forever)


def _head(title: str, refresh: bool) -> Markup:
    # The script refreshes a page in place. Where there is none the browser reloads it, less often.
    reload = el("meta", http_equiv="refresh", content=2 * REFRESH_SECONDS)
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("title", f"{title} · Detent"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="robots", content="noindex"),
        el("link", rel="icon", href=_file("icon.svg"), type="image/svg+xml"),
        el("link", rel="stylesheet", href=_file("style.css")),
        el("noscript", reload) if refresh else None,
        el("script", src=_file("refresh.js"), defer=True),
    )


def _header(here: str | None) -> Markup:
    mark = el("img", src=_file("icon.svg"), alt="", width=26, height=26)
    return el(
        "header",
        el("a", mark, el("span", "Detent"), href="/", class_="brand"),
        el(
            "nav",
            [
                el("a", label, href=address, aria_current="page" if address == here else None)
                for label, address in (("Overview", "/"), ("Jobs", "/jobs"), ("Executions", "/executions"))
            ],
            aria_label="Pages",
        ),
        el("p", class_="link-state", role="status", id="link-state"),
    )


def _footer(raw: str | None) -> Markup:
    parts: list[Markup] = [
        el("span", f"Detent {__version__}"),
        el("span", "Instants are in UTC unless a zone is named"),
    ]
    if raw:
        parts.append(el("a", "This page as JSON", href=raw))
    parts.append(el("a", "API contract", href="/api/v1/openapi.json"))
    return el("footer", join(*parts))


def _file(name: str) -> str:
    return f"/static/{name}?v={_VERSIONS[name]}"
