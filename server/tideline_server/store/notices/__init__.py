"""Targets and notices in the database (engine.ports.notices)."""

from tideline_server.store.notices.adapter import SqlNotices

__all__ = ["SqlNotices"]
