"""The bell: a hint that something moved, within one process or, over Redis, between replicas."""

from tideline_server.bell.in_process import LocalBell
from tideline_server.bell.over_redis import RedisBell

__all__ = ["LocalBell", "RedisBell"]
