from __future__ import annotations

from api_client import Api


async def test_x(api: Api) -> None:
    made = await api.job(cron="0 9 * * mon-fri", timezone="Europe/Berlin")
    assert made["status"] == "scheduled"
    print(made)
    print(await api.timer(made))
