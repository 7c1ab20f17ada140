"""Gathering everything that is wrong with a request, so that one try is enough to fix it."""

from __future__ import annotations

from detent.model.errors import FieldError, InvalidInput

# A batch can be wrong in tens of thousands of places; nobody reads more than these.
MOST = 100


class Refusals:
    """Errors by field; `prefix` is put in front of the fields of one item of a batch."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.errors: list[FieldError] = []

    def add(self, field: str, message: str, code: str = "invalid") -> None:
        path = f"{self.prefix}.{field}" if self.prefix and field else self.prefix or field
        self.errors.append(FieldError(path, code, message))

    def take(self, refusal: InvalidInput, field: str | None = None) -> None:
        """Note what another part refused, under the name that the request used for the field."""
        for error in refusal.errors:
            self.add(error.field if field is None else field, error.message, error.code)

    def __bool__(self) -> bool:
        return bool(self.errors)

    def raise_any(self) -> None:
        if self.errors:
            raise InvalidInput(*self.errors[:MOST])
