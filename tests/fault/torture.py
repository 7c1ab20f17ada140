"""`make torture SEED=1 MINUTES=20`: whole runs of the rig, one seed after the other, until the time is over.

Each run has its own data folder and its own seed: faults for a while, then healing, settling and the check
of every promise. A run that finds a difference prints it with its seed, and the torture ends with 1; the
same seed does the same again.
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration"), str(HERE.parent)]

from killing import Systems  # noqa: E402
from rig import for_minutes, torment  # noqa: E402

RUN_MINUTES = 1.2


def main(words: list[str]) -> int:
    seed, minutes = int(words[0]), float(words[1])
    end = time.monotonic() + 60 * minutes
    runs = jobs = executions = losses = 0
    while time.monotonic() < end:
        print(f"SEED={seed}", flush=True)
        try:
            with tempfile.TemporaryDirectory() as notes, Systems(Path(notes)) as systems:
                story = torment(systems, seed, for_minutes(RUN_MINUTES, seed))
        except Exception:
            traceback.print_exc()
            print(f"failed; again with: make torture SEED={seed} MINUTES=1")
            return 1
        runs, seed = runs + 1, seed + 1
        jobs += len(story.owed)
        executions += len(story.tables["executions"])
        losses += story.losses
    print(
        f"{runs} runs with as many seeds: {jobs} jobs, {executions} executions, {losses} attempts lost with"
        " their workers; 0 lost, 0 unexplained, 0 double outcomes, 0 stuck"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
