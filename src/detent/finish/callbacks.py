"""Tells a job's callback_url how its executions closed.

The statement that closes an execution queues its callback, so none is lost and none is queued for a closing
that did not happen. Here due ones are taken in batches, posted side by side, and settled in batches.

Delivery is at least once. Taking pushes not_before ahead by the lease, in the statement that takes:
  crash before it        nothing happened
  crash after it         the callback is due again when the lease is over; the try is counted
  crash after the post   the same, and the receiver hears it twice
  a second keeper        skips locked rows, and sees taken ones as not yet due
So every post carries `Detent-Delivery: <execution_id>`, the same for each try: a receiver that remembers it
hears everything once. `Detent-Try` counts. Callbacks come in no order.

Delivered is an answer of 2xx, nothing else; no redirect is followed and no body is read. Whatever else
happens is tried again after 10 s, 20 s, 40 s … at most an hour, 32 times, which is about a day. An address
that must not be called (see `addresses`) is given up at once. What is given up stays in the table with its
reason for a person, and is a warning.

One slow receiver has at most PER_ORIGIN posts under way and so cannot keep the others waiting. A post has
TIMEOUT seconds, far less than the lease: by the time a row may be taken again its post is over.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import time
from collections import Counter
from datetime import timedelta
from uuid import UUID

import aiohttp
import msgspec

from detent.finish.addresses import AddressRefused, LookUp, connector, look_up, target_of
from detent.model.errors import StoreUnavailable
from detent.runtime.service import Service
from detent.store import callbacks
from detent.store.callbacks import Due, PutOff
from detent.store.database import Database
from detent.when.instant import format_instant

log = logging.getLogger("detent.callbacks")

TIMEOUT = 10.0
LEASE = timedelta(seconds=60)
SENDING = 64
PER_ORIGIN = 8
FIRST_PAUSE = 10.0
LONGEST_PAUSE = 3600.0
MOST_TRIES = 32
LONGEST_REASON = 500
BUFFER = 4096  # of an answer that nobody reads
CLOSE_SECONDS = 3.0
REST = 4.0  # times what a look for due ones took: a long one passes over a busy receiver's whole backlog
LONGEST_REST = 2.0

_MILLISECOND = timedelta(milliseconds=1)


def pause_after(tries: int, spread: float) -> timedelta | None:
    """The wait after the n-th try, or None to give up. `spread` from 0 to 1 scatters it by a tenth."""
    if tries >= MOST_TRIES:
        return None
    seconds = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries - 1, 30))
    return timedelta(seconds=seconds * (0.9 + 0.2 * spread))


def body_of(due: Due) -> bytes:
    """What the receiver is told. Result and error are JSON in the store, and are passed on as they are."""
    lasted = due.finished_at - due.started_at if due.finished_at and due.started_at else None
    return msgspec.json.encode(
        {
            "execution_id": due.execution_id,
            "job_id": due.job_id,
            "name": due.name,
            "status": due.status,
            "cause": due.cause,
            "scheduled_for": due.scheduled_for and format_instant(due.scheduled_for),
            "started_at": due.started_at and format_instant(due.started_at),
            "finished_at": due.finished_at and format_instant(due.finished_at),
            "duration_ms": None if lasted is None else lasted // _MILLISECOND,
            "attempt": due.attempt,
            "result": due.result and msgspec.Raw(due.result.encode()),
            "error": due.error and msgspec.Raw(due.error.encode()),
        }
    )


class CallbackSender(Service):
    name = "callbacks"
    every = 1.0

    def __init__(
        self,
        database: Database,
        *,
        allow_private: bool = False,
        timeout: float = TIMEOUT,
        look_up: LookUp = look_up,
    ) -> None:
        super().__init__()
        self._database = database
        self._allow_private = allow_private
        self._timeout = timeout
        self._look_up = look_up
        self._session: aiohttp.ClientSession | None = None
        self._sending: dict[asyncio.Task[str | None], Due] = {}
        self._delivered: list[UUID] = []
        self._put_off: list[tuple[PutOff, Due]] = []
        self._rested_at = 0.0

    async def opened(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=connector(allow_private=self._allow_private, limit=SENDING, look_up=self._look_up),
            cookie_jar=aiohttp.DummyCookieJar(),  # what one receiver sets is no other's business
            timeout=aiohttp.ClientTimeout(),  # none of its own: ours is around all of it
            auto_decompress=False,
            read_bufsize=BUFFER,
            trust_env=False,
        )

    async def run_once(self) -> float | None:
        # Settling first: were it to fail, taking would meet rows whose outcome is known here.
        await self._settle()
        room = SENDING - len(self._sending)
        started = time.monotonic()
        if room == 0 or self.stopping:
            return None
        if started < self._rested_at:
            return self._rested_at - started
        under_way = Counter(due.origin for due in self._sending.values())
        taken = await callbacks.take(self._database, room, under_way, PER_ORIGIN, LEASE)
        ended = time.monotonic()
        self._rested_at = ended + min(LONGEST_REST, REST * (ended - started))
        for due in taken:
            self._start(due)
        return None  # an ended post wakes us

    def _start(self, due: Due) -> None:
        if due.tries > MOST_TRIES:
            # Keepers ended during every single try; it must not go on with the next one for ever.
            self._not_delivered(due, None, "no try came to its end")
        elif due.status is None:
            self._not_delivered(due, None, "its execution is no longer in the history")
        else:
            task = asyncio.create_task(self._post(due), name=f"callback {due.execution_id}")
            self._sending[task] = due
            task.add_done_callback(functools.partial(self._ended, due))

    async def _post(self, due: Due) -> str | None:
        """Post one callback; None if it was delivered, else why it was not."""
        assert self._session is not None
        target = target_of(due.url)
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Detent",
            "Detent-Delivery": str(due.execution_id),
            "Detent-Try": str(due.tries),
        }
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._session.post(
                    target, data=body_of(due), headers=headers, allow_redirects=False
                ) as answer,
            ):
                # What it says beyond its status is not read: it would be a look into whatever answered.
                return None if 200 <= answer.status < 300 else f"the receiver answered {answer.status}"
        except TimeoutError:
            return f"no answer within {self._timeout:g} s"
        except aiohttp.InvalidURL as error:
            raise AddressRefused(f"refused: the callback_url cannot be used ({error})") from None
        except (aiohttp.ClientError, OSError) as error:
            return f"{type(error).__name__}: {error}"

    def _ended(self, due: Due, task: asyncio.Task[str | None]) -> None:
        del self._sending[task]
        if task.cancelled():
            return  # its lease ends by itself
        error = task.exception()
        if isinstance(error, AddressRefused):
            self._not_delivered(due, None, str(error))
        elif error is not None:
            log.error("callback of execution %s: posting failed", due.execution_id, exc_info=error)
            self._not_delivered(due, _pause(due), f"{type(error).__name__}: {error}")
        elif (why := task.result()) is not None:
            self._not_delivered(due, _pause(due), why)
        else:
            self._delivered.append(due.execution_id)
            self.wake()

    def _not_delivered(self, due: Due, pause: timedelta | None, why: str) -> None:
        # The text may come from anywhere; one that the store cannot take would keep all others from it.
        clean = why.encode("utf-8", "replace").decode().replace("\0", "\ufffd")[:LONGEST_REASON]
        self._put_off.append((PutOff(due.execution_id, due.tries, pause, clean), due))
        self.wake()

    async def _settle(self) -> None:
        """Write down how posts ended. What ends meanwhile, or cannot be written now, is for the next time."""
        if delivered := tuple(self._delivered):
            await callbacks.drop(self._database, delivered)
            del self._delivered[: len(delivered)]
        if put_off := tuple(self._put_off):
            settled = await callbacks.put_off(self._database, [row for row, _ in put_off])
            del self._put_off[: len(put_off)]
            for row, due in put_off:
                if row.execution_id in settled:
                    _report(row, due)

    async def closed(self) -> None:
        if self._sending:
            await asyncio.wait(self._sending, timeout=CLOSE_SECONDS)
        for task in tuple(self._sending):
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        try:
            await self._settle()
        except StoreUnavailable as error:
            log.warning("%s; callbacks just delivered will be delivered again", error)
        if self._session is not None:
            await self._session.close()


def _pause(due: Due) -> timedelta | None:
    return pause_after(due.tries, random.random())  # noqa: S311


def _report(row: PutOff, due: Due) -> None:
    # The path and query of a callback's address may hold its secret; only its origin is said.
    if row.pause is None:
        log.warning(
            "callback of execution %s to %s is given up after %d tries: %s",
            row.execution_id, due.origin, row.tries, row.error,
        )  # fmt: skip
    else:
        log.info(
            "callback of execution %s to %s was not delivered, next try in %.0f s: %s",
            row.execution_id, due.origin, row.pause.total_seconds(), row.error,
        )  # fmt: skip
