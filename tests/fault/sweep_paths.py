"""All paths along which the system commits, by name."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from sweep_place import Given, Path, place_at
from sweep_requests import (
    CancelJob,
    CancelQueued,
    CancelRunning,
    CancelStaged,
    Create,
    CreateBatch,
    Discard,
    Edit,
    EditStaged,
    Pause,
    PauseStaged,
    PutByName,
    Replay,
    Resume,
    RunByHand,
)
from sweep_services import (
    Beats,
    ClaimAhead,
    ClaimWork,
    Finish,
    FinishCancelled,
    FinishDead,
    FinishFailure,
    FinishMixed,
    Fire,
    Log,
    OutOfTime,
    Park,
    Release,
    Rescue,
    Shards,
    StageAhead,
    StopInDoubt,
    WholeLife,
)

PATHS: dict[str, Path] = {
    "fire": Fire(),
    "stage ahead": StageAhead(),
    "park": Park(),
    "shards": Shards(),
    "claim": ClaimWork(),
    "claim ahead": ClaimAhead(),
    "log": Log(),
    "heartbeat": Beats(),
    "finish success": Finish(),
    "finish failure, retry": FinishFailure(),
    "finish failure, dead letter": FinishDead(),
    "finish cancelled": FinishCancelled(),
    "finish mixed": FinishMixed(),
    "release and stop": Release(),
    "stop in doubt": StopInDoubt(),
    "whole life": WholeLife(),
    "rescue": Rescue(),
    "out of time": OutOfTime(),
    "cancel queued": CancelQueued(),
    "cancel running": CancelRunning(),
    "cancel job": CancelJob(),
    "replay": Replay(),
    "discard": Discard(),
    "create": Create(),
    "create batch": CreateBatch(),
    "put by name": PutByName(),
    "edit": Edit(),
    "pause": Pause(),
    "resume": Resume(),
    "edit staged": EditStaged(),
    "pause staged": PauseStaged(),
    "cancel staged": CancelStaged(),
    "run by hand": RunByHand(),
}

DIES = [name for name, path in PATHS.items() if path.killed]


async def die_walking(name: str, url: str, given: bytes, ready: Callable[[], None]) -> None:
    """Walk a path in a process that is killed on the way."""
    async with place_at(url) as place:
        ready()
        await PATHS[name].walk(place, msgspec.json.decode(given, type=Given))
