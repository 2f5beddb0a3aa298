"""The journal's accounts: who may work for runs, and who may ask for them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from tideline.core.run import ClientId
from tideline.engine.model.api_keys import ApiKey
from tideline.engine.model.clients import Client, Invite, Keys
from tideline.engine.model.orders import OrderRow


class Accounts(Protocol):
    """Invitations, agents, and the API keys of users."""

    def add_invite(self, invite: Invite, by: str = "", now: float = 0.0) -> None:
        """Write an invite; one that is there already stays as it is."""
        ...

    def invite(self, token_hash: str) -> Invite | None: ...

    def enrol(self, token_hash: str, client: Client) -> bool:
        """Use an unused invite and add the client, both or neither. Only a revoked client of that name is replaced."""
        ...

    def client(self, name: str) -> Client | None: ...

    def clients(self) -> tuple[Client, ...]: ...

    def saw(self, name: ClientId, now: float, version: str | None = None, roles: tuple[str, ...] | None = None) -> None:
        """Note that a client lives. A version and roles that it told replace those known; other roles stand in the log."""
        ...

    def saw_all(self, names: Collection[ClientId], now: float) -> None:
        """Note of many at once that they live."""
        ...

    def rekey(self, name: ClientId, before: str, keys: Keys, now: float = 0.0, handover: str = "") -> bool:
        """Give a client new keys, if its key to sign is still `before`.

        handover: the signature by which the old keys vouch for the new ones; without it nobody who knows the old ones follows.
        """
        ...

    def approve(self, name: ClientId, by: str = "", now: float = 0.0) -> bool:
        """Approve a pending client. False if it is not pending."""
        ...

    def ask_rotation(self, name: ClientId, by: str = "", now: float = 0.0) -> None:
        """Note that a client is asked for new keys."""
        ...

    def revoke(self, name: ClientId, reason: str, now: float, by: str = "") -> tuple[OrderRow, ...]:
        """Revoke a client, and end its open orders as failed; these, as they are then.

        One that is revoked keeps its date and its reason, and orders that came since are ended.
        """
        ...

    def revoked(self) -> frozenset[ClientId]:
        """Who is revoked."""
        ...

    def add_key(self, key: ApiKey) -> bool:
        """Write a key; False where its id is known, or another key has the name that is not revoked."""
        ...

    def api_keys(self) -> tuple[ApiKey, ...]:
        """Every key, the oldest first; of one age, by id."""
        ...

    def revoke_key(self, name: str, now: float, by: str = "") -> bool:
        """Revoke the key of this name; False where none is good."""
        ...

    def used_key(self, key_id: str, now: float) -> None:
        """Note that a key was used; a later time that is known stays."""
        ...
