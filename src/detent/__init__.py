"""Detent: a distributed job scheduler on PostgreSQL.

from detent import task, Client, Context, NonRetryable
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detent.execute.context import Context
    from detent.execute.ending import NonRetryable
    from detent.sdk.client import Client
    from detent.sdk.failures import ClientError
    from detent.sdk.task import task

__version__ = "0.1.0"
__all__ = ["Client", "ClientError", "Context", "NonRetryable", "__version__", "task"]

# Looked up on first use: a script that only needs the client does not pay for the worker's parts.
_HOMES = {
    "Client": "detent.sdk.client",
    "ClientError": "detent.sdk.failures",
    "Context": "detent.execute.context",
    "NonRetryable": "detent.execute.ending",
    "task": "detent.sdk.task",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'detent' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
