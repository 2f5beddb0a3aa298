"""What replicas share through Redis, if there is one: the bell, a hint that something moved, and counts of calls."""

from tideline_server.bell.counts import LocalCounts
from tideline_server.bell.counts_in_redis import RedisCounts
from tideline_server.bell.in_process import LocalBell
from tideline_server.bell.over_redis import RedisBell

__all__ = ["LocalBell", "LocalCounts", "RedisBell", "RedisCounts"]
