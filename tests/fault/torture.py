"""`make torture SEED=1 MINUTES=20`: whole runs of the rig, one seed after the other, until the time is over.

Each run has its own data folder and its own seed: three schedulers and two workers (SCHEDULERS, WORKERS), faults
for a while, then healing, settling and the check of every promise. With FAULT there is one fault only, again and
again. A run that finds a difference prints it with its seed, and the torture ends with 1; the same seed does
the same again.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration"), str(HERE.parent)]

from killing import Systems  # noqa: E402
from rig import ALL, BY_NAME, Fault, for_minutes, torment  # noqa: E402
from story import Story  # noqa: E402

RUN_MINUTES = 1.0
LONGEST_RUN = 2.0  # minutes: in so long a torture there are as many runs at least, however busy the machine
GIVE_UP_AFTER = 3  # seeds that failed


@dataclass
class Tally:
    """What came of all runs."""

    seeds: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    jobs: int = 0
    fires: int = 0
    staged: int = 0  # fires that were decided before their instant
    executions: int = 0
    attempts: int = 0
    losses: int = 0

    def add(self, story: Story) -> None:
        self.jobs += len(story.owed)
        self.fires += len(story.tables["fires"])
        self.staged += sum(row["decided_at"] < row["nominal_at"] for row in story.tables["fires"])
        self.executions += len(story.tables["executions"])
        self.attempts += len(story.tables["attempts"])
        self.losses += story.losses

    def row(self, minutes: float, schedulers: int, workers: int) -> str:
        """As it stands in docs/guarantees.md."""
        seeds = (
            f"seeds {self.seeds[0]} to {self.seeds[-1]}" if len(self.seeds) > 1 else f"seed {self.seeds[0]}"
        )
        return (
            f"| torture, {schedulers} schedulers and {workers} workers, {seeds} ({len(self.seeds)}), {minutes:.0f}"
            f" minutes, {RUN_MINUTES:g} of faults each | {self.jobs:,} jobs, {self.fires:,} ledger rows"
            f" ({self.staged:,} staged), {self.executions:,} executions, {self.attempts:,} attempts, {self.losses:,} of them lost with their"
            " workers: 0 lost, 0 unexplained, 0 double outcomes, 0 stuck |"
        )


def run(seed: int, faults: list[Fault], schedulers: int, workers: int) -> Story:
    with (
        tempfile.TemporaryDirectory() as notes,
        Systems(Path(notes), schedulers=schedulers, workers=workers) as systems,
    ):
        return torment(systems, seed, for_minutes(RUN_MINUTES, seed, faults))


def main(words: list[str]) -> int:
    seed, minutes = int(words[0]), float(words[1])
    fault = os.environ.get("FAULT", "")
    if fault and fault not in BY_NAME:
        print(f"no such fault: {fault}; there are: {', '.join(BY_NAME)}")
        return 2
    faults = [BY_NAME[fault]] if fault else list(ALL)
    schedulers, workers = int(os.environ.get("SCHEDULERS") or 3), int(os.environ.get("WORKERS") or 2)
    began = time.monotonic()
    tally = Tally()
    while len(tally.failed) < GIVE_UP_AFTER and (
        time.monotonic() < began + 60 * minutes or len(tally.seeds) < minutes / LONGEST_RUN
    ):
        print(f"SEED={seed}", flush=True)
        try:
            tally.add(run(seed, faults, schedulers, workers))
        except Exception:
            traceback.print_exc()
            again = f"make torture SEED={seed} MINUTES=1" + (f' FAULT="{fault}"' if fault else "")
            print(f"failed; again with: {again}", flush=True)
            tally.failed.append(seed)
        tally.seeds.append(seed)
        seed += 1
    if tally.failed:
        print(f"of {len(tally.seeds)} seeds {len(tally.failed)} failed: {', '.join(map(str, tally.failed))}")
        return 1
    print(f"{len(tally.seeds)} seeds, no difference:")
    print(tally.row((time.monotonic() - began) / 60, schedulers, workers))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
