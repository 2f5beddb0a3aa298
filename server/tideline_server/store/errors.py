"""What can be wrong with a store before it is used."""

from __future__ import annotations

from tideline.core.errors import Refused


class StoreRefused(Refused):
    """The database cannot be opened, is no Tideline store, or was written by another version."""
