"""The journal in a database. Nothing outside this package knows SQL."""

from tideline_server.store.database.address import StoreAway, StoreRefused
from tideline_server.store.journal import SqlJournal

__all__ = ["SqlJournal", "StoreAway", "StoreRefused"]
