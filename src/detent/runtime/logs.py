"""What the program says about itself: one line a message, to standard error, with the role that speaks.

Text for people, JSON for machines. A traceback is part of its message: indented in text, a field in JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import IO

from detent.runtime.config import Config

# Libraries speak from these levels on; below, theirs would drown ours. The driver's pool tells of every
# connection that it cannot renew while the database is away, with a traceback: our loops say it in a line.
QUIET = {"asyncio": logging.WARNING, "uvicorn.access": logging.WARNING, "asyncpg": logging.ERROR}


class TextFormatter(logging.Formatter):
    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        text = f"{at}.{int(record.msecs):03d} {self._role:<9} {level}{record.getMessage()}"
        trace = self._trace(record)
        return text + "".join(f"\n    {line}" for line in trace.splitlines())

    def _trace(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""


class JsonFormatter(logging.Formatter):
    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "at": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "role": self._role,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def configure(config: Config, role: str, stream: IO[str] | None = None) -> None:
    """Send every log message to `stream` (standard error) as `role`. Replaces an earlier set-up."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(role) if config.log_format == "json" else TextFormatter(role))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(config.log_level.upper())
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)
    # A broken pipe on standard error must not become an endless stream of complaints about itself.
    logging.raiseExceptions = False
