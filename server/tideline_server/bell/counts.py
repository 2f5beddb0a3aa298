"""Counts of calls in the last minute, for limits: in this process, or in Redis for all replicas."""

from __future__ import annotations

import contextlib
import math
import threading
from dataclasses import dataclass

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

MINUTE = 60.0
MOST = 10_000  # callers that are remembered at once


@dataclass(frozen=True)
class Tally:
    """A caller's calls: how many of them in the clock's minute `at`, and how many in the one before."""

    at: int = 0
    before: int = 0
    within: int = 0

    def moved(self, at: int) -> Tally:
        """The same in a later minute. A clock that was set back begins anew."""
        if at == self.at:
            return self
        return Tally(at, self.within if at == self.at + 1 else 0)


def minute_of(now: float) -> tuple[int, float]:
    """The clock's minute, and the share of it that has passed."""
    at = math.floor(now / MINUTE)
    return at, now / MINUTE - at


def seconds_to_wait(tally: Tally, passed: float, limit: int) -> float:
    """After how many seconds one more call is within the limit; 0: now.

    The minute that lies behind has all calls of the clock's minute so far, and of the one before the share that reaches into it.
    """
    free = limit - 1 - tally.within
    if free < 0:  # not before the next minute of the clock, in which these calls are those of the one before
        return MINUTE * (1 - passed + share_to_wait(tally.within, limit - 1))
    return MINUTE * max(share_to_wait(tally.before, free) - passed, 0.0)


def share_to_wait(before: int, free: int) -> float:
    """The share of a minute after which no more than `free` of the calls in the minute before still count."""
    return max(1 - free / before, 0.0) if before else 0.0


class LocalCounts:
    """Counts in this process, from any thread."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._tallies: dict[str, Tally] = {}

    async def take(self, who: str, limit: int, now: float) -> float:
        """Count a call if it is within so many a minute; else the seconds after which one will be."""
        at, passed = minute_of(now)
        with self._lock:
            tally = self._tallies.pop(who, Tally()).moved(at)
            wait = seconds_to_wait(tally, passed, limit)
            self._tallies[who] = tally if wait else Tally(at, tally.before, tally.within + 1)
            while len(self._tallies) > self._most:
                del self._tallies[next(iter(self._tallies))]  # who called longest ago
        return wait

    async def close(self) -> None:
        """Nothing to let go of."""


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
        with contextlib.suppress(RedisError, OSError):
            await self._redis.aclose()
