"""What replicas share through Redis, if there is one: the bell, a hint that something moved, and counts of calls."""

from tideline_server.bell.address import redis_of
from tideline_server.bell.bell import LocalBell, RedisBell
from tideline_server.bell.counts import LocalCounts, RedisCounts

__all__ = ["LocalBell", "LocalCounts", "RedisBell", "RedisCounts", "redis_of"]
