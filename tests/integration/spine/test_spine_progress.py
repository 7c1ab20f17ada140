"""Progress is fenced like every other write of a worker."""

from __future__ import annotations

from uuid import UUID

from detent.cli.wiring import PostgresPulse
from detent.model.work import Claim, Progress
from detent.store.executions import Progressed, read_detail
from stage import TENANT, Stage


async def tell(
    stage: Stage, claim: Claim, pct: float, message: str | None = None, token: int = 0
) -> set[tuple[UUID, int]]:
    pulse = PostgresPulse(await stage.hot.dedicated())
    try:
        return await pulse.progress(
            [Progress(claim.execution_id, claim.attempt, token or claim.token, pct, message)]
        )
    finally:
        await pulse.close()


async def shown(stage: Stage, claim: Claim) -> Progressed | None:
    detail = await read_detail(stage.db, TENANT, claim.execution_id, stage.now())
    assert detail is not None
    return detail.progress


def said(told: Progressed | None) -> tuple[int, float, str | None] | None:
    return None if told is None else (told.attempt, told.pct, told.message)


async def test_the_last_word_of_a_running_attempt_is_shown_and_outlives_it(stage: Stage) -> None:
    _, claim = await stage.running()
    assert await shown(stage, claim) is None
    assert await tell(stage, claim, 10, "reading") == set()
    assert await tell(stage, claim, 75.5) == set()
    assert said(await shown(stage, claim)) == (1, 75.5, None)
    await stage.record(stage.ended(claim, "succeeded"))
    assert said(await shown(stage, claim)) == (1, 75.5, None)


async def test_progress_under_another_token_or_of_an_attempt_that_is_over_changes_nothing(
    stage: Stage,
) -> None:
    worker_id, claim = await stage.running()
    stale = {(claim.execution_id, claim.attempt)}
    before = await stage.everything()
    assert await tell(stage, claim, 10, token=claim.token - 1) == stale
    assert await stage.everything() == before
    await stage.record(stage.ended(claim, "released"))
    assert await tell(stage, claim, 20) == stale
    assert await shown(stage, claim) is None
    [second] = await stage.claim(worker_id)
    assert await tell(stage, second, 5) == set()
    assert await tell(stage, claim, 99) == stale
    assert said(await shown(stage, claim)) == (2, 5.0, None)


async def test_a_late_word_does_not_stand_over_that_of_the_next_attempt(stage: Stage) -> None:
    """As if the first attempt's statement had looked before it was taken away and wrote afterwards."""
    worker_id, claim = await stage.running()
    await stage.record(stage.ended(claim, "released"))
    [second] = await stage.claim(worker_id)
    await tell(stage, second, 5)
    await stage.db.execute("update detent.live set attempt = $1, token = $2", claim.attempt, claim.token)
    await tell(stage, claim, 99)
    assert said(await shown(stage, claim)) == (2, 5.0, None)
