"""Two coordinators with one Redis let an address in so often and no more; without it each counts for itself, and all go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance.harness import Net, net
from tests.redis import Redis, running

pytestmark = pytest.mark.processes
LIMIT = 20


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    with running(tmp_path) as made:
        yield made


def statuses(doors: list[Net], times: int) -> list[int]:
    """What so many requests are answered, at one door after the other."""
    with httpx.Client() as client:
        keys = {door.http: {"Authorization": f"Bearer {(door.folder / 'admin.key').read_text()}"} for door in doors}
        asked = [doors[at % len(doors)].http for at in range(times)]
        return [client.get(f"http://127.0.0.1:{port}/runs", headers=keys[port]).status_code for port in asked]


def test_replicas_share_a_limit(tmp_path: Path, redis: Redis) -> None:
    """As many as one is let in at all of them together; a kill of Redis refuses nobody who would not be refused without it."""
    homes = [tmp_path / name for name in ("one", "two")]
    for home in homes:
        home.mkdir()
    with net(homes[0]) as one, net(homes[1]) as two:
        for each in (one, two):
            each.coordinator("--redis", redis.url, "--rate", str(LIMIT))
        told = statuses([one, two], 2 * LIMIT)
        # Where a minute of the clock ends meanwhile, a call of the one before may fall out.
        assert set(told) == {200, 429} and LIMIT <= told.count(200) <= LIMIT + 3
        redis.kill()
        assert statuses([one], 3) == statuses([two], 3) == [200] * 3
