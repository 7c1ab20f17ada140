"""HTML that cannot be broken into."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.api.pages.markup import document, el, join, terminal_text

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&lt;"
# What HTML itself normalises or cannot carry, and what we show as pictures.
printable = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufdd0").filter(
        lambda c: (ord(c) & 0xFFFE) != 0xFFFE and not 0xFDD0 <= ord(c) <= 0xFDEF
    )
)


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    return reader


@given(printable, printable)
def test_any_text_comes_out_as_it_went_in_and_adds_no_element(inner: str, title: str) -> None:
    found = read(el("td", inner, title=title))
    assert found.elements == [("td", {"title": title})]
    assert found.text == inner


def test_hostile_text_stays_text() -> None:
    found = read(el("div", HOSTILE, ["a", None, el("b", HOSTILE)], data_x=HOSTILE))
    assert [tag for tag, _ in found.elements] == ["div", "b"]
    assert found.elements[0][1] == {"data-x": HOSTILE}
    assert found.text == f"{HOSTILE}a{HOSTILE}"


def test_what_is_none_or_false_is_left_out() -> None:
    assert el("p", None, hidden=False, title=None) == "<p></p>"
    assert el("script", src="/x.js", defer=True) == '<script src="/x.js" defer></script>'
    assert join(0, None, "<") == "0&lt;"


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "//elsewhere", "https://elsewhere", "", " /x", "data:,"]
)
def test_links_lead_to_this_server_alone(address: str) -> None:
    with pytest.raises(ValueError, match="this server"):
        el("a", "x", href=address)


@pytest.mark.parametrize("attribute", ["style", "onclick", "onerror"])
def test_what_the_policy_refuses_is_refused_at_once(attribute: str) -> None:
    with pytest.raises(ValueError, match="policy"):
        el("p", **{attribute: "x"})


def test_control_characters_are_shown_as_pictures() -> None:
    assert el("p", "a\x00\x1b\x7f\x9bb\tc\nd") == "<p>a␀␛␡�b\tc\nd</p>"


def test_a_terminals_colours_are_left_out_and_its_text_is_not() -> None:
    assert terminal_text("\x1b[1;31mred\x1b[0m \x1b]0;title\x07[31m done\x1b(B") == "red [31m done"


def test_half_a_surrogate_pair_does_not_stop_a_page() -> None:
    assert b"a?b" in document(el("p", "a\ud800b"))
