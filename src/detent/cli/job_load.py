"""`detent job load`: very many jobs from a file of JSON lines."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any

import click

from detent.cli.inputs import JsonText
from detent.cli.output import as_json as print_json
from detent.cli.remote import connect, talks_to_server
from detent.model.errors import FieldError, InvalidInput

if TYPE_CHECKING:
    from detent.sdk.client import Client

BATCH = 5_000
BATCH_BYTES = 24 * 1024 * 1024  # below what the server takes
SENDERS = 3  # requests under way: one is read, one is written
TRIES = 8
PAUSE, LONGEST_PAUSE = 0.5, 10.0
TOLD_EVERY = 1.0
PATIENCE = 120.0

EXAMPLES = """\b
Examples:
  detent job load jobs.jsonl
  detent job load jobs.jsonl --check
  zcat jobs.jsonl.gz | detent job load - --load-name spring

\b
Each line is a job as POST /api/v1/jobs takes it:
  {"name": "remind 1", "task": "send_mail", "delay": "PT2H", "payload": {"to": "a@example.org"}}

A load may be repeated after anything, and makes what is missing: a line with an idempotency_key is known by
it, any other by the name of the load (FILE, unless --load-name says another) and its number. A batch is made
as a whole or not at all. A wrong line ends the load; the batches before it stay.
"""

Line = tuple[int, bytes]  # its number, and the job with its key


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.File("rb"))
@click.option("--batch", type=click.IntRange(1, 10_000), default=BATCH, show_default=True,
              help="Jobs in a request.")  # fmt: skip
@click.option("--load-name", metavar="TEXT", help="What lines without a key are known by.  [FILE]")
@click.option("--check", is_flag=True, help="Only see that every line is a JSON object.")
@talks_to_server
def load(
    file: IO[bytes], batch: int, load_name: str | None, check: bool, url: str | None, as_json: bool
) -> None:
    """Create jobs from JSON lines, as many as there are.

    FILE has one job on each line; - is standard input.
    """
    name = load_name or file.name
    if name in ("-", "<stdin>") and not check:
        raise click.UsageError("standard input has no name to know its lines by: give --load-name")
    lines = lines_of(file, name)
    if check:
        count = sum(1 for _ in lines)
        print_json({"lines": count}) if as_json else click.echo(f"{count:,} lines are JSON objects")
        return
    told = Told()
    for count in in_batches(lines, batch, url):
        told.add(count)
    if as_json:
        print_json({"jobs": told.jobs, "seconds": round(told.seconds(), 3)})
    else:
        told.end()


class UnreadableLine(InvalidInput):
    """A line that is no JSON object."""


class Told:
    """How far it is, for a person who waits."""

    def __init__(self) -> None:
        self.jobs = 0
        self._started = self._last = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def add(self, jobs: int) -> None:
        self.jobs += jobs
        if time.monotonic() - self._last >= TOLD_EVERY:
            self._last = time.monotonic()
            click.echo(f"{self.jobs:,} jobs, {self._pace():,.0f}/s", err=True)

    def end(self) -> None:
        click.echo(f"{self.jobs:,} jobs are there, after {self.seconds():.1f} s ({self._pace():,.0f}/s)")

    def _pace(self) -> float:
        return self.jobs / max(self.seconds(), 0.001)


def in_batches(lines: Iterator[Line], batch: int, url: str | None) -> Iterator[int]:
    """Send everything; answers how many jobs each batch has, in order, as it is done."""
    under_way: deque[Future[int]] = deque()
    clients = [connect(url, timeout=PATIENCE) for _ in range(SENDERS)]
    wrong = None
    with ThreadPoolExecutor(SENDERS) as senders:
        try:
            for number, some in enumerate(batches(lines, batch)):
                if len(under_way) >= SENDERS:
                    yield under_way.popleft().result()
                under_way.append(senders.submit(send, clients[number % SENDERS], some))
        except UnreadableLine as error:  # what was sent before it counts
            wrong = error
        while under_way:
            yield under_way.popleft().result()
    if wrong is not None:
        raise wrong


def lines_of(file: IO[bytes], name: str) -> Iterator[Line]:
    """The jobs in a file with the numbers of their lines; blank lines are left out."""
    load = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=12).hexdigest()
    for number, raw in enumerate(file, 1):
        text = raw.strip()
        if text:
            job = _object(number, text)
            if job.get("idempotency_key") is None:
                # Of two fields with one name the last one counts.
                key = b'"idempotency_key":"load:%b:%d"}' % (load.encode(), number)
                text = text[:-1] + (b"," if job else b"") + key
            yield number, text


def _object(number: int, text: bytes) -> dict[str, Any]:
    try:
        job = JsonText(text.decode()).value
    except UnicodeDecodeError:
        raise UnreadableLine.of(f"line {number}", "is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableLine.of(f"line {number}", f"is not JSON: {error}") from None
    if not isinstance(job, dict):
        raise UnreadableLine.of(f"line {number}", "is no JSON object: write one job on each line")
    return job


def batches(lines: Iterator[Line], most: int) -> Iterator[list[Line]]:
    some: list[Line] = []
    size = 0
    try:
        for line in lines:
            if some and (len(some) >= most or size + len(line[1]) > BATCH_BYTES):
                yield some
                some, size = [], 0
            some.append(line)
            size += len(line[1])
    except UnreadableLine:
        if some:
            yield some
        raise
    if some:
        yield some


def send(client: Client, lines: list[Line]) -> int:
    """Make one batch, with patience for a server that is away for a while."""
    from detent.sdk.failures import CannotConnect, Conflict, InvalidRequest, Unavailable

    pause = PAUSE
    for tries in range(1, TRIES + 1):
        try:
            client.load([text for _, text in lines])
            return len(lines)
        except (CannotConnect, Unavailable) as error:
            if tries == TRIES:
                raise
            click.echo(f"{error}; trying again in {pause:g} s", err=True)
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        except (InvalidRequest, Conflict) as error:
            found = [_of_line(one, lines) for one in error.errors]
            raise InvalidInput(*found or [_of_all(lines, error)]) from error
    raise AssertionError("the last try returns or raises")


def _of_line(error: FieldError, lines: list[Line]) -> FieldError:
    """`jobs[3].cron` is the field `cron` of the batch's fourth line."""
    where, _, field = error.field.partition("]")
    if not where.startswith("jobs[") or not where[5:].isdigit():
        return error
    number = lines[int(where[5:])][0]
    message = error.message
    if error.code == "idempotency_conflict":
        message += ": to load other jobs under these lines, give another --load-name"
    return FieldError(f"line {number}" + (f", {field.lstrip('.')}" if field else ""), error.code, message)


def _of_all(lines: list[Line], error: Exception) -> FieldError:
    return FieldError(f"lines {lines[0][0]} to {lines[-1][0]}", "invalid", str(error))
