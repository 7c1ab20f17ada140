"""The addresses of the pages."""

from __future__ import annotations

from litestar.handlers import HTTPRouteHandler

HANDLERS: list[HTTPRouteHandler] = []
