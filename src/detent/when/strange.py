"""What people write who come from another scheduler: refused, or accepted with a hint."""

from __future__ import annotations

import re
from collections.abc import Mapping

from detent.when.fields import WEEKDAYS, refuse, shown
from detent.when.hashed import is_hashed

_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)[ \t]+(.+)", re.IGNORECASE)
_QUARTZ_DAY = re.compile(r"(?:^|[,-])([1-7])(?=$|[,/#L-])", re.IGNORECASE)
_FULL = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


def refuse_strangers(text: str, nicknames: Mapping[str, str]) -> None:
    """Refuse, each for its own reason, what is right elsewhere and wrong here."""
    if text.startswith("@"):
        _nickname(text, nicknames)
    elif zoned := _ZONE.fullmatch(text):
        refuse(f"the zone goes into the field 'timezone': {shown(zoned[1])}; write just {shown(zoned[2])}")
    elif re.match(r"R[0-9]*/", text):
        refuse(
            f"{shown(text)} is a repeating interval of ISO 8601; use the field 'every', for example "
            '"every": "PT1H", with \'start_at\' for its beginning'
        )


def _nickname(text: str, nicknames: Mapping[str, str]) -> None:
    if text.lower() in nicknames:
        return
    word = text.split()[0].lower()
    if word == "@reboot":
        refuse(
            "'@reboot' has no meaning here, since no one machine's start is the cluster's; "
            "write for example '@daily' or '0 9 * * *'"
        )
    if word == "@every":
        refuse("'@every' is not cron; use the field 'every', for example \"every\": \"PT15M\"")
    if word in nicknames:
        refuse(f"{shown(text)}: nothing may follow {word!r}; a command goes into 'task'; write just {word!r}")
    refuse(f"{shown(text)} is not a nickname; write one of {', '.join(nicknames)}")


def hash_hints(text: str) -> tuple[str, ...]:
    """For a preview without a job."""
    if not any(map(is_hashed, text.split())):
        return ()
    return ("H is chosen for each job by a hash of its id: these are the instants of one such choice",)


def hints(text: str) -> tuple[str, ...]:
    """What somebody should know about an expression that is accepted but may mean something else to them."""
    words = text.split()
    if len(words) not in (6, 7):
        return ()
    numbers = [int(number) for number in _QUARTZ_DAY.findall(words[5])]
    if not numbers or words[5] in ("1-7", "0-7"):
        return ()
    here, there = _FULL[numbers[0] % 7], _FULL[numbers[0] - 1]
    return (
        f"day of week {numbers[0]} is {here}; Quartz counts from Sunday as 1, to it this is {there}: "
        f"write {WEEKDAYS[numbers[0] % 7]!r} or {WEEKDAYS[numbers[0] - 1]!r} to be sure",
    )
