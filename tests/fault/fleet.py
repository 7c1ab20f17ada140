"""Scheduler nodes in processes of their own, over one database, that are started, killed and stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from story import ask
from systems import clean_environment, until

from detent.model.ids import SHARDS

START_SECONDS = 40.0
SETTLE_SECONDS = 30.0

OWNERS = """
select jsonb_object_agg(pid, shards)::text from (
    select n.pid::text as pid, count(s.shard) as shards
    from detent.nodes n left join detent.shard_leases s on s.node_id = n.node_id
    where n.pid = any($1::integer[]) group by n.pid) x
"""


class Scheduler:
    """One process. It is `still` while it stands still."""

    def __init__(self, url: str, notes: Path, *, standby: bool = False) -> None:
        self.standby = standby
        self.still = False
        words = [sys.executable, "-m", "detent", "scheduler", "--database", url]
        self._notes = notes
        with notes.open("wb") as out:
            self.process = subprocess.Popen(
                [*words, *(["--standby"] if standby else [])],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=clean_environment(),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> str:
        return self._notes.read_text(errors="replace")

    def ready(self) -> bool:
        assert self.process.poll() is None, self.said
        return "scheduler: owns" in self.said

    def stand_still(self) -> None:
        self.still = True
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        self.still = False
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ask_to_leave(self) -> None:
        self.process.terminate()

    def left(self) -> None:
        """It went in order."""
        assert self.process.wait(20) == 0, self.said


class Fleet:
    """All the nodes of one database."""

    def __init__(self, url: str, notes: Path) -> None:
        self.url = url
        self._notes = notes
        self.started: list[Scheduler] = []
        self.nodes: list[Scheduler] = []

    def start(self, count: int = 1, *, standby: bool = False, url: str | None = None) -> list[Scheduler]:
        """Start some at once; they may not be ready yet."""
        new = []
        for _ in range(count):
            notes = self._notes / f"scheduler-{len(self.started)}"
            new.append(Scheduler(url or self.url, notes, standby=standby))
            self.started.append(new[-1])
        self.nodes += new
        return new

    def join(self, count: int = 1, *, standby: bool = False, url: str | None = None) -> list[Scheduler]:
        """Start some, and wait until the shards are shared with them."""
        new = self.start(count, standby=standby, url=url)
        self.settled()
        return new

    def kill(self, node: Scheduler) -> float:
        """kill -9; answers when."""
        at = time.monotonic()
        node.kill()
        self.nodes.remove(node)
        return at

    def leave(self, node: Scheduler) -> None:
        """SIGTERM, and wait for its end."""
        node.ask_to_leave()
        node.left()
        self.nodes.remove(node)

    def owners(self) -> dict[int, int]:
        """How many shards each of the present nodes owns, by process."""
        found = ask(self.url, OWNERS, [node.pid for node in self.nodes])
        return {int(pid): shards for pid, shards in json.loads(found or "{}").items()}

    def shared(self) -> bool:
        """Whether every shard has an owner that lives, and everybody who should own some does."""
        owners = self.owners()
        active = [node for node in self.nodes if not node.standby] or self.nodes
        own = [owners.get(node.pid, 0) for node in active]
        return sum(own) == SHARDS == sum(owners.values()) and all(own)

    def owned_without(self, gone: Scheduler, since: float, within: float) -> float:
        """Seconds from an instant until no shard belongs to that node any more."""
        until(lambda: self._has_none(gone), within, "the taking over")
        return time.monotonic() - since

    def _has_none(self, gone: Scheduler) -> bool:
        owned = """select count(*) from detent.shard_leases s left join detent.nodes n using (node_id)
                   where n.pid is null or n.pid = $1"""
        return bool(ask(self.url, owned, gone.pid) == 0)

    def settled(self) -> None:
        until(lambda: all(node.ready() for node in self.nodes), START_SECONDS, "the start of the nodes")
        until(self.shared, SETTLE_SECONDS, "a fleet that shares all shards")

    def complaints(self) -> list[str]:
        return [node.said for node in self.started if "Traceback" in node.said or "error: " in node.said]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note("\n".join(f"{node.pid}: {node.said[-2000:]}" for node in self.started))
        for node in self.started:
            if node.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    node.go_on()
                node.kill()
