"""What an attempt prints, in constant memory.

Each stream keeps its first 512 KiB, sent on as they come, and its last 512 KiB, which wait in a ring until
the attempt ends; between them a marker says how many bytes were left out. A program that prints a hundred
megabytes costs no more than one that prints two.

Chunks are cut at 16 KiB or after 200 ms, and numbered across streams in the order in which the bytes came.
Bytes become text incrementally, so a character that is split between two reads arrives whole. Writers may
be on any thread (a handler's own threads log), hence the lock; what leaves goes to a sink on the loop.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable, Sequence
from typing import Literal

from detent.model.work import Claim, LogChunk
from detent.runtime.clock import Clock

StreamName = Literal["stdout", "stderr", "log"]

HEAD_LIMIT = 512 * 1024
TAIL_LIMIT = 512 * 1024
CHUNK_BYTES = 16 * 1024
FLUSH_AFTER = 0.2

# Two streams that alternate byte by byte must not become a million rows: past this many changes between
# two cuts, text joins the last piece of its own stream and the order between streams is approximate.
MOST_PIECES = 64


class _Stream:
    """One stream: how much of it went out, the ring of its end, and a character cut in two."""

    __slots__ = ("decoder", "omitted", "sent", "tail")

    def __init__(self) -> None:
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.sent = 0
        self.tail = bytearray()
        self.omitted = 0

    def take(self, data: bytes) -> str:
        """Accept bytes; answer the text that can go out now."""
        room = HEAD_LIMIT - self.sent
        if room <= 0:
            self._keep(data)
            return ""
        head = data[:room]
        self.sent += len(head)
        if len(data) > room:
            self._keep(data[room:])
        return self.decoder.decode(head)

    def _keep(self, data: bytes) -> None:
        tail = self.tail
        tail += data
        # Trimming at twice the size moves each byte once on average instead of at every write.
        if len(tail) > 2 * TAIL_LIMIT:
            self._trim()

    def _trim(self) -> None:
        over = len(self.tail) - TAIL_LIMIT
        if over > 0:
            del self.tail[:over]
            self.omitted += over

    def end(self) -> str:
        """The rest: what the decoder holds, or the marker and the tail."""
        self._trim()
        if not self.omitted:
            return self.decoder.decode(bytes(self.tail), final=True)
        # The cut may fall inside a character on both sides: its bytes count as left out.
        self.omitted += len(self.decoder.getstate()[0])
        start = 0
        while start < 3 and start < len(self.tail) and self.tail[start] & 0xC0 == 0x80:
            start += 1
        self.omitted += start
        text = bytes(self.tail[start:]).decode("utf-8", "replace")
        return f"\n… {self.omitted:,} bytes left out …\n{text}"


class Output:
    """Everything one attempt writes."""

    def __init__(self, claim: Claim, clock: Clock, first: Callable[[Output], None]) -> None:
        """`first` is called, on whatever thread writes, when there is something to flush again."""
        self._claim = claim
        self._clock = clock
        self._first = first
        self._lock = threading.Lock()
        self._streams: dict[StreamName, _Stream] = {}
        self._pieces: list[tuple[StreamName, list[str]]] = []
        self._waiting = 0  # characters in pieces
        self._ready: list[LogChunk] = []
        self._announced = False
        self._seq = 0
        self._closed = False

    @property
    def claim(self) -> Claim:
        return self._claim

    def write(self, stream: StreamName, data: bytes | str) -> None:
        """Take what was printed. After the end of the attempt it is ignored."""
        if isinstance(data, str):
            data = data.encode("utf-8", "replace")
        with self._lock:
            if self._closed:
                return
            state = self._streams.get(stream)
            if state is None:
                state = self._streams[stream] = _Stream()
            self._add(stream, state.take(data))
            announce = not self._announced and bool(self._waiting or self._ready)
            self._announced = self._announced or announce
        if announce:
            self._first(self)

    def take(self) -> Sequence[LogChunk]:
        """The chunks to send now; the next write announces itself again."""
        with self._lock:
            self._announced = False
            self._cut()
            chunks, self._ready = self._ready, []
            return chunks

    def close(self) -> Sequence[LogChunk]:
        """No more writes; the last chunks, with every stream's marker and tail."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for name, state in self._streams.items():
                    self._add(name, state.end())
                self._streams.clear()
            self._cut()
            chunks, self._ready = self._ready, []
            return chunks

    def _add(self, stream: StreamName, text: str) -> None:
        if not text:
            return
        if "\x00" in text:
            text = text.replace("\x00", "\ufffd")
        if self._pieces and self._pieces[-1][0] == stream:
            self._pieces[-1][1].append(text)
        else:
            self._join(stream, text)
        self._waiting += len(text)
        if self._waiting >= CHUNK_BYTES:
            self._cut()

    def _join(self, stream: StreamName, text: str) -> None:
        if len(self._pieces) >= MOST_PIECES:
            for name, parts in reversed(self._pieces):
                if name == stream:
                    parts.append(text)
                    return
        self._pieces.append((stream, [text]))

    def _cut(self) -> None:
        if not self._pieces:
            return
        now = self._clock.now()
        claim = self._claim
        for stream, parts in self._pieces:
            whole = "".join(parts)
            for start in range(0, len(whole), CHUNK_BYTES):
                text = whole[start : start + CHUNK_BYTES]
                self._ready.append(
                    LogChunk(claim.execution_id, claim.attempt, claim.token, self._seq, stream, now, text)
                )
                self._seq += 1
        self._pieces.clear()
        self._waiting = 0
