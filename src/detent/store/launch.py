"""Becomes another program: drops to a user, ties its life to its parent's, and executes it.

Run as a script with `python -I -S`, before exec, so that the scheduler needs no code between fork and
exec (which is unsafe in a program with threads). The order matters: a change of user clears the
parent-death signal, an exec keeps it. Arguments: parent pid, uid and gid (or -1), signal, program, ...
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

PR_SET_PDEATHSIG = 1


def become(arguments: list[str]) -> None:
    parent, uid, gid, death = (int(word) for word in arguments[:4])
    program = arguments[4:]
    # Found before the change of user: the user may not be able to read this interpreter's library.
    tie = _prctl()
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if tie is not None:
        tie(PR_SET_PDEATHSIG, death, 0, 0, 0)
        if os.getppid() != parent:  # it died before the tie was made
            sys.exit(1)
    os.umask(0o077)
    os.chdir("/")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # A bare environment: PGPORT, PGDATA or a locale of the user's must not change the server.
    os.execve(program[0], program, {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"})  # noqa: S606


def _prctl() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    try:
        import ctypes
    except ImportError:  # an interpreter without it: the next start ends what is left over
        return None
    found: Callable[..., int] = ctypes.CDLL(None).prctl
    return found


if __name__ == "__main__":
    become(sys.argv[1:])
