"""The measurements know tables and statements by name: when those change, this says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIZES = ("--n", "300", "--timers", "300", "--schedules", "300", "--rounds", "1", "--patience", "0")


@pytest.mark.timeout(300)
def test_the_raw_statements_and_the_roles_around_them_can_be_measured(tmp_path: Path) -> None:
    out = tmp_path / "lines"
    done = subprocess.run(
        [sys.executable, "-m", "bench", "drain", "fire", "pipeline", "--no-peers", *SIZES, "--out", str(out)],
        cwd=ROOT, capture_output=True, text=True, timeout=280, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    assert {line["figure"]: line.get("failed") for line in lines} == dict.fromkeys(
        (
            "plain_queue",
            "raw_claim_close",
            "drain_1",
            "drain_2",
            "raw_fire",
            "fire",
            "raw_pipeline",
            "pipeline",
        )
    ), done.stderr[-2000:]
    assert done.returncode == 0
    assert not list(tmp_path.glob("detent-bench-*"))
