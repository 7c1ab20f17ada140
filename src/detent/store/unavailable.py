"""Which of PostgreSQL's and the driver's errors mean that the store cannot be had just now.

They are mapped here, where they enter, to `StoreUnavailable` with a sentence for people; every other
error (a constraint, a value out of range) passes as it is, because it is about the statement. A statement
that had to give way to another one is not at fault: it is told like an absence, so that it is repeated as it
is. One that took too long is in between: a part of it may be quick, see `passing`.
"""

from __future__ import annotations

import contextlib
import errno
import ssl
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import asyncpg

from detent.model.errors import StartupError, StoreUnavailable

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

_SENTENCES: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((asyncpg.QueryCanceledError,), ""),
    (
        (asyncpg.TransactionRollbackError, asyncpg.LockNotAvailableError),
        "the database gave precedence to another statement",
    ),
    ((asyncpg.TooManyConnectionsError,), "the database has no connection to spare"),
    (
        (asyncpg.ReadOnlySQLTransactionError, asyncpg.TargetServerAttributeNotMatched),
        "the database takes no writes: it is a replica, or it was set read-only",
    ),
    ((asyncpg.DiskFullError,), "the database's disk is full"),
    ((asyncpg.OutOfMemoryError,), "the database is out of memory"),
    ((asyncpg.OperatorInterventionError,), "the database is shutting down or starting up"),
    (
        (asyncpg.PostgresConnectionError, asyncpg.IdleInTransactionSessionTimeoutError, ConnectionError),
        "the connection to the database was lost",
    ),
    ((TimeoutError,), "the database did not answer in time"),
)


def sentence_for(error: BaseException) -> str:
    """Why the store cannot be had, or nothing if this error is about something else."""
    for kinds, sentence in _SENTENCES:
        if isinstance(error, kinds):
            return sentence
    # The driver has no class of its own for a connection that it knows to be gone.
    if isinstance(error, asyncpg.InterfaceError) and ("closed" in str(error) or "closing" in str(error)):
        return "the connection to the database was lost"
    if broken(error):
        return "the connection to the database was lost"
    return ""


def broken(error: BaseException) -> bool:
    """Whether the driver lost its thread: a server that ended the session by itself had the last word, and
    the driver takes that for the answer to what was never asked. The connection is of no more use.
    """
    return isinstance(error, asyncpg.InternalClientError)


def passing(error: BaseException) -> bool:
    """Whether the very same statement may go well another time: it ran out of time, waiting for a lock."""
    return isinstance(error, asyncpg.QueryCanceledError)


@contextlib.contextmanager
def store_errors() -> Iterator[None]:
    """Around every use of a connection."""
    try:
        yield
    except (*DRIVER_ERRORS, ConnectionError, TimeoutError) as error:
        if sentence := sentence_for(error):
            raise StoreUnavailable(sentence) from error
        raise


@contextlib.contextmanager
def opening_errors(url: str) -> Iterator[None]:
    """Around connecting: what may pass by itself is StoreUnavailable, what needs a hand StartupError."""
    try:
        yield
    except ssl.SSLError as error:
        raise StartupError(f"no TLS connection to the database at {shown(url)}: {error.reason}") from error
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as error:
        raise StartupError(f"the database at {shown(url)} refuses us: {error}") from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise StartupError(f"the database at {shown(url)} refuses us: {error}") from error
    except (asyncpg.ClientConfigurationError, ValueError) as error:
        raise StartupError(f"the address of the database is not valid: {error}") from error
    except (*DRIVER_ERRORS, OSError) as error:
        sentence = sentence_for(error)
        if isinstance(error, OSError) and not isinstance(error, TimeoutError):
            sentence = f"cannot reach the database at {shown(url)}: {_reason(error)}"
        if not sentence:
            raise StartupError(f"the database at {shown(url)} cannot be used: {error}") from error
        raise StoreUnavailable(sentence) from error


def _reason(error: OSError) -> str:
    # The event loop puts all addresses it tried into one error without a number.
    if isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(error):
        return "connection refused"
    if isinstance(error, FileNotFoundError):
        return "nothing listens there"
    return (error.strerror or str(error)).lower()


def shown(url: str) -> str:
    """A database URL for messages and logs: where it is, without who we are and what we know."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", ["localhost"])[0]
    return f"{host}{parts.path}" if not host.startswith("/") else host
