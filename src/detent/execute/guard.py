"""Ends the programs of a worker that was killed.

A worker that ends in order ends its programs first. One that is killed cannot, and a program that runs on
would work beside the attempt that replaces it. A tiny shell process therefore holds one end of a pipe and
the list of process groups: when the worker is gone the pipe closes, and the guard ends what is left. It
covers whole groups, which a parent-death signal on the first process of each would not, and needs no code
between fork and exec in a process with threads.
"""

from __future__ import annotations

import logging
import os
import subprocess

log = logging.getLogger("detent.worker")

_SCRIPT = """
trap '' INT HUP TERM
groups=' '
while read -r verb group; do
  case $verb in
    begin) groups="$groups$group " ;;
    end) case $groups in
           *" $group "*) groups="${groups%%" $group "*} ${groups#*" $group "}" ;;
         esac ;;
  esac
done
[ "$groups" = ' ' ] && exit 0
for group in $groups; do kill -s TERM -- "-$group" 2>/dev/null; done
for turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
  left=''
  for group in $groups; do kill -s 0 -- "-$group" 2>/dev/null && left=1; done
  [ "$left" ] || exit 0
  sleep 0.2
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
"""


class Guard:
    """Started with the first program; restarted if someone kills it."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._pipe: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def ready(self) -> None:
        """Stand by before a program starts, so that naming its group is all that is left to do then."""
        if self._pipe is None:
            self._start()

    def begin(self, group: int) -> None:
        """From now on this process group ends with the worker."""
        self._groups.add(group)
        if not self._say(f"begin {group}"):
            self._start()

    def end(self, group: int) -> None:
        """This process group is gone."""
        self._groups.discard(group)
        if self._pipe is not None:
            self._say(f"end {group}")

    def close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        if self._process is not None:
            try:
                self._process.wait(0.5 if not self._groups else 0)
            except subprocess.TimeoutExpired:
                log.debug("the guard is still ending process groups")
            self._process = None

    def _start(self) -> None:
        self.close()
        reader, writer = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "detent-guard"],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            os.close(writer)
            log.warning("programs will outlive this worker if it is killed: no guard (%s)", error)
            return
        finally:
            os.close(reader)
        self._pipe = writer
        for group in self._groups:
            self._say(f"begin {group}")

    def _say(self, line: str) -> bool:
        if self._pipe is None:
            return False
        try:
            os.write(self._pipe, f"{line}\n".encode())  # far below PIPE_BUF: whole or not at all
        except OSError:
            return False
        return True
