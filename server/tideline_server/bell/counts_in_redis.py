"""Counts of calls in Redis, so that replicas share them. They are worth a minute: flushing them loses nothing."""

from __future__ import annotations

import contextlib

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from tideline_server.bell.counts import LocalCounts, Tally, minute_of, seconds_to_wait

CALL_SECONDS = 0.25  # after which a silent Redis counts as away: a call waits for it
AWAY_SECONDS = 5.0  # for which a Redis that was away is not asked again

# The call is counted where the one before it was looked at: replicas that ask at once do not share one place.
TAKE = """
local before, within = tonumber(redis.call('GET', KEYS[1]) or 0), tonumber(redis.call('GET', KEYS[2]) or 0)
if before * (1 - tonumber(ARGV[2])) + within > tonumber(ARGV[1]) - 1 then return {before, within, 0} end
redis.call('INCR', KEYS[2])
redis.call('EXPIRE', KEYS[2], 120)
return {before, within, 1}
"""


class RedisCounts:
    """Counts of all replicas. While Redis is away, each counts for itself."""

    def __init__(self, url: str, patience: float = CALL_SECONDS) -> None:
        at_most = {"socket_connect_timeout": patience, "socket_timeout": patience}
        self._redis = redis.from_url(url, **at_most, retry=Retry(NoBackoff(), 0))
        self._script = self._redis.register_script(TAKE)
        self._here, self._again = LocalCounts(), 0.0

    async def take(self, who: str, limit: int, now: float) -> float:
        """Count a call if it is within so many a minute; else the seconds after which one will be."""
        if now >= self._again:
            try:
                return await self._take(who, limit, now)
            except (RedisError, OSError):
                self._again = now + AWAY_SECONDS
        return await self._here.take(who, limit, now)

    async def _take(self, who: str, limit: int, now: float) -> float:
        at, passed = minute_of(now)
        keys = [f"tideline:calls:{{{who}}}:{minute}" for minute in (at - 1, at)]
        before, within, taken = await self._script(keys, [limit, passed])
        return 0.0 if taken else seconds_to_wait(Tally(at, int(before), int(within)), passed, limit)

    async def close(self) -> None:
        """Let go of the connections."""
        with contextlib.suppress(RedisError, OSError):
            await self._redis.aclose()
