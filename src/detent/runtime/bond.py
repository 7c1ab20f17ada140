"""A role's side of its bond with the supervisor.

The bond is one socket. Over it the role says once that it is ready, or why it cannot start. The other end
lives only in the supervisor, so its end of file means that the supervisor is gone, however it died. The
kernel also sends SIGTERM at that moment where it can (Linux); elsewhere the watching thread sends it. A role
that does not end in time after that is ended: no process outlives its supervisor for long.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from typing import Any

PR_SET_PDEATHSIG = 1
# After the role's own grace: what a drain needs to write down and to close.
ORPHAN_MARGIN = 5.0


@dataclass(frozen=True, slots=True)
class Word:
    """What a role says to its supervisor."""

    kind: str  # ready | failed
    text: str
    code: int = 0

    def encode(self) -> bytes:
        return json.dumps({"kind": self.kind, "text": self.text, "code": self.code}).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Word:
        fields: dict[str, Any] = json.loads(line)
        return cls(str(fields["kind"]), str(fields["text"]), int(fields["code"]))


class Bond:
    """The child's end."""

    def __init__(self, label: str, end: socket.socket) -> None:
        self.label = label
        self._end = end
        self._asked_by_kernel = False

    @classmethod
    def from_text(cls, text: str) -> Bond:
        """Take up the bond that a supervisor described: its label, descriptor and process id."""
        label, descriptor, parent = text.split(":")
        end = socket.socket(fileno=int(descriptor))
        end.set_inheritable(False)  # a task's programs must not keep the bond open
        bond = cls(label, end)
        bond._die_with(int(parent))
        return bond

    def watch(self, grace: float) -> None:
        """End this process when the supervisor is gone."""
        threading.Thread(target=self._until_orphaned, args=(grace,), name="bond", daemon=True).start()

    def ready(self, line: str) -> None:
        self._say(Word("ready", line))

    def failed(self, message: str, code: int) -> None:
        self._say(Word("failed", message, code))

    def _say(self, word: Word) -> None:
        try:
            self._end.sendall(word.encode())
        except OSError:  # nobody listens any more; the watching thread acts on it
            pass

    def _until_orphaned(self, grace: float) -> None:
        try:
            while self._end.recv(64):
                pass
        except OSError:
            pass
        if not self._asked_by_kernel:
            os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(grace + ORPHAN_MARGIN)
        os._exit(1)

    def _die_with(self, parent: int) -> None:
        if sys.platform == "linux":
            import ctypes

            done = ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) == 0
            self._asked_by_kernel = done and os.getppid() == parent
