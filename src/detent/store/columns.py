"""Parameters of batches: each is an array, which the statement takes apart with `unnest`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def column(values: tuple[Any, ...]) -> Sequence[Any]:
    """A parameter of `unnest`, which makes up for missing elements with nulls: a column of nothing else is
    sent as an empty array, since encoding one element costs as much as encoding a number.
    """
    return () if values.count(None) == len(values) else values
