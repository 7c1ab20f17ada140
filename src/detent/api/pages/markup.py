"""HTML that cannot be broken into.

Job names, payloads, output and errors are written by others. Whatever becomes part of a page passes through
`el`, which escapes every child and every attribute that is not `Markup` already, and only this module makes
`Markup`. Links lead to this server alone, and what the content security policy would refuse (inline styles
and scripts) is refused here, where the mistake is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

_VOID = frozenset({"br", "hr", "img", "link", "meta"})
_LINKS = frozenset({"href", "src"})
# Control characters are shown as their pictures: browsers drop some and stumble over others.
_CONTROLS = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A, 0x0D)}
_CONTROLS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
# What a terminal would not show: colours, cursor moves, titles.
_TERMINAL = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[()][0-9A-B])")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = "str | int | Markup | Iterable[Child] | None"
Attribute: TypeAlias = str | int | bool | None

NOTHING = Markup("")


def el(tag: str, *children: Child, **attributes: Attribute) -> Markup:
    """An element: `el("td", name, class_="name", data_label="Name")`. None is left out everywhere."""
    opening = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{opening}>")
    return Markup(f"<{tag}{opening}>{join(*children)}</{tag}>")


def join(*children: Child) -> Markup:
    return Markup("".join(_child(child) for child in children))


def text(value: str) -> Markup:
    """Plain text as HTML."""
    return Markup(html.escape(value.translate(_CONTROLS), quote=True))


def terminal_text(value: str) -> str:
    """What a program wrote to its terminal, as it would read there without colours."""
    return _TERMINAL.sub("", value)


def document(root: Markup) -> bytes:
    # Half of a surrogate pair has no place in UTF-8; a question mark has.
    return f"<!doctype html>\n{root}\n".encode(errors="replace")


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return text(child)
    if isinstance(child, int):
        return str(child)
    return "".join(_child(one) for one in child)


def _attribute(name: str, value: Attribute) -> str:
    name = name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if name == "style" or name.startswith("on"):
        raise ValueError(f"the content security policy refuses the attribute {name}")
    if value is True:
        return f" {name}"
    if name in _LINKS and not re.match(r"/(?!/)|#", str(value)):
        raise ValueError("pages link to this server alone")
    return f' {name}="{text(str(value))}"'
