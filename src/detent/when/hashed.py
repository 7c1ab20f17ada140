"""`H`: a value chosen by a hash of the job, so that jobs which do not care about the moment spread out.

    H           one value of the field (of the days 1 to 28 for the day of month)
    H/15        from a beginning among the first 15 values to the end by 15
    H(0-29)     one value of a range
    H(0-29)/10  within a range, by a step

`H` is written out before anything is parsed: `H H(0-7) * * *` is, for one job, `37 4 * * *`. So it is the
same on every node and for as long as the job lives, and jobs with the same outcome share one rule. Each field
is hashed for itself, otherwise `H H` would use 60 of 1,440 minutes.
"""

from __future__ import annotations

import hashlib
import re

from detent.when.fields import DAY, WEEKDAY, YEAR, Kind, read_value, values_between, wrong

PREVIEW_SEED = 0  # what a preview without a job uses

_HASHED = re.compile(r"h(?:\(([^()]*)\))?(?:/([0-9]{1,9}))?")
_SPAN = re.compile(r"([0-9]{1,4}|[a-z]{3})-([0-9]{1,4}|[a-z]{3})")
_MARK = re.compile(r"(?:^|,)h(?![a-z])", re.IGNORECASE)


def is_hashed(text: str) -> bool:
    """Whether an item of this field is an `H`."""
    return _MARK.search(text) is not None


def written_out(kind: Kind, text: str, seed: int) -> str:
    """The field with its `H` replaced by what it means for the job of this seed."""
    digest = hashlib.blake2b(f"{seed:x} {kind.name}".encode(), digest_size=8).digest()
    return _replaced(kind, text, int.from_bytes(digest))


def every_choice(kind: Kind, text: str) -> list[str]:
    """The field as it is written out for each job that differs."""
    choices: dict[str, None] = {}
    for pick in range(kind.high - kind.low + 1):
        choices[_replaced(kind, text, pick)] = None
    return list(choices)


def _replaced(kind: Kind, text: str, pick: int) -> str:
    items = text.split(",")
    hashed = [index for index, item in enumerate(items) if is_hashed(item)]
    if len(hashed) > 1:
        wrong(kind, text, "has more than one H, one is allowed in a field")
    for index in hashed:
        items[index] = _chosen(kind, items[index], pick)
    return ",".join(items)


def _chosen(kind: Kind, item: str, pick: int) -> str:
    found = _HASHED.fullmatch(item.lower())
    if found is None:
        wrong(kind, item, "is no form of H, known are H, H/15, H(0-29) and H(0-29)/10")
    if kind is YEAR:
        wrong(kind, item, "cannot be chosen by a hash")
    values = _span(kind, item, found[1])
    if found[2] is None:
        return str(values[pick % len(values)])
    step = int(found[2])
    if step == 0:
        wrong(kind, item, "has a step of 0, it must be at least 1")
    return ",".join(map(str, values[pick % min(step, len(values)) :: step]))


def _span(kind: Kind, item: str, inside: str | None) -> list[int]:
    if inside is None:
        # Every month has the days up to 28, and one Sunday a week is enough.
        high = 28 if kind is DAY else 6 if kind is WEEKDAY else kind.high
        return list(range(kind.low, high + 1))
    span = _SPAN.fullmatch(inside)
    if span is None:
        wrong(kind, item, "needs a range between its brackets, such as H(1-5)")
    low, high = (read_value(kind, item, end) for end in span.groups())
    return values_between(kind, item, low, high)
