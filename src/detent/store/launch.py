"""Becomes another program: drops to a user, ties its life to its parent's, and executes it.

Run as a script with `python -I -S`, before exec, so that the scheduler needs no code between fork and
exec (which is unsafe in a program with threads). The order matters: a change of user clears the
parent-death signal, an exec keeps it. Arguments: parent pid, uid and gid (or -1), signal, program, ...
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def become(arguments: list[str]) -> None:
    parent, uid, gid, death = (int(word) for word in arguments[:4])
    program = arguments[4:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        _die_with(parent, death)
    os.umask(0o077)
    os.chdir("/")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # A bare environment: PGPORT, PGDATA or a locale of the user's must not change the server.
    os.execve(program[0], program, {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"})  # noqa: S606


def _die_with(parent: int, death: int) -> None:
    try:
        import ctypes
    except ImportError:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death, 0, 0, 0)
    if os.getppid() != parent:  # it died before the tie was made
        sys.exit(1)


if __name__ == "__main__":
    become(sys.argv[1:])
