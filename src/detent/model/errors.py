"""The error tree. Every error that a user can meet has a stable code.

DetentError
├── InvalidInput        a field is wrong; names the fields (422)
│   └── NotAvailable    a field whose feature is not built yet (422)
├── NotFound            no such thing, or another tenant's (404)
├── Conflict            wrong state, or another body under the same key (409)
├── StoreUnavailable    the database cannot be reached or cannot write (503)
│   └── StoreBusy       it undid a transaction, whole, because of others (503)
├── SchemaMismatch      the schema is newer than this program, or was altered
└── StartupError        a role cannot start: data folder in use, port taken, ...
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field, what is wrong with it, and what would be right."""

    field: str
    code: str
    message: str


class DetentError(Exception):
    code = "error"


class InvalidInput(DetentError):
    code = "invalid"

    def __init__(self, *errors: FieldError) -> None:
        super().__init__("; ".join(f"{e.field}: {e.message}" for e in errors))
        self.errors = errors

    @classmethod
    def of(cls, field: str, message: str, code: str = "invalid") -> InvalidInput:
        return cls(FieldError(field, code, message))


class NotAvailable(InvalidInput):
    code = "not_available"


class NotFound(DetentError):
    code = "not_found"


class Conflict(DetentError):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class StoreUnavailable(DetentError):
    code = "store_unavailable"


class StoreBusy(StoreUnavailable):
    """Nothing of the transaction was kept: it may be done again as it was."""


class SchemaMismatch(DetentError):
    code = "schema_mismatch"


class StartupError(DetentError):
    code = "startup"
