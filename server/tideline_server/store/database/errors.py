"""What can be wrong with a store before it is used, and what its transactions run into."""

from __future__ import annotations

from tideline.core.errors import Refused, Unreachable


class StoreRefused(Refused):
    """The database cannot be opened, is no Tideline store, or was written by another version."""


class StoreAway(StoreRefused):
    """The database does not answer now. It may be starting."""


class GaveWay(Unreachable):
    """The database undid a transaction for another's sake. Done again it may succeed; nobody outside the store meets this."""
