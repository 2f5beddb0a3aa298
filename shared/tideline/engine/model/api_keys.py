"""API keys: what a journal keeps of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class KeyRole(StrEnum):
    """What the holder of a key may do: look; run experiments and let agents in; everything."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def covers(self, needed: KeyRole) -> bool:
        """Whether this role may do what needs that one."""
        order = tuple(KeyRole)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True)
class ApiKey:
    """A key of the people's door. Of the key itself there is only a hash. A name is free again once its key is revoked.

    last_used   to the minute; None: never       expires   None: never       revoked   None: it is good
    """

    id: str
    name: str
    key_hash: str
    role: KeyRole
    created: float
    created_by: str
    last_used: float | None = None
    expires: float | None = None
    revoked: float | None = None
