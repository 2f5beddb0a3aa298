"""A journal's people within a process: invites and clients."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace

from tideline.core.run import ClientId
from tideline.engine.audit import entries
from tideline.engine.model.clients import Client, Invite, Keys, Standing
from tideline.engine.model.transitions import rekeyed
from tideline.engine.simulation.audit import MemoryAudit


class MemoryPeople(MemoryAudit):
    """Invites and clients, in dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self._people_lock = threading.Lock()
        self._invites: dict[str, Invite] = {}
        self._clients: dict[ClientId, Client] = {}

    def add_invite(self, invite: Invite, by: str = "", now: float = 0.0) -> None:
        with self._people_lock:
            if invite.token_hash not in self._invites:
                self._invites[invite.token_hash] = invite
                self.record([entries.invited(invite, by, now)])

    def invite(self, token_hash: str) -> Invite | None:
        return self._invites.get(token_hash)

    def enrol(self, token_hash: str, client: Client) -> bool:
        with self._people_lock:
            invite, known = self._invites.get(token_hash), self._clients.get(client.name)
            taken = known is not None and known.standing is not Standing.REVOKED
            if invite is None or invite.used_by or taken:
                return False
            self._invites[token_hash] = replace(invite, used_by=client.name)
            self._clients[client.name] = client
            self.record([entries.enrolled(client, token_hash)])
            return True

    def client(self, name: str) -> Client | None:
        return self._clients.get(ClientId(name))

    def clients(self) -> tuple[Client, ...]:
        with self._people_lock:
            return tuple(self._clients[n] for n in sorted(self._clients))

    def saw(self, name: ClientId, now: float, version: str | None = None, roles: tuple[str, ...] | None = None) -> None:
        with self._people_lock:
            if name in self._clients:
                old = self._clients[name]
                self._clients[name] = replace(old, seen=now, version=version or old.version, roles=roles or old.roles)
                if roles and set(roles) != set(old.roles):
                    self.record([entries.roles_changed(name, old.roles, roles, now)])

    def saw_all(self, names: Collection[ClientId], now: float) -> None:
        for name in names:
            self.saw(name, now)

    def rekey(self, name: ClientId, before: str, keys: Keys, now: float = 0.0, handover: str = "") -> bool:
        with self._people_lock:
            known = self._clients.get(name)
            if known is None or known.sign_key != before:
                return False
            self._clients[name] = rekeyed(known, keys, handover)
            self.record([entries.rotated(name, keys, now)])
            return True

    def approve(self, name: ClientId, by: str = "", now: float = 0.0) -> bool:
        with self._people_lock:
            known = self._clients.get(name)
            if known is None or known.standing is not Standing.PENDING:
                return False
            self._clients[name] = replace(known, standing=Standing.APPROVED)
            self.record([entries.about_client("approved", name, now, by)])
            return True

    def ask_rotation(self, name: ClientId, by: str = "", now: float = 0.0) -> None:
        with self._people_lock:
            if name in self._clients and not self._clients[name].rotate:
                self._clients[name] = replace(self._clients[name], rotate=True)
                self.record([entries.about_client("rotation_asked", name, now, by)])

    def revoked(self) -> frozenset[ClientId]:
        with self._people_lock:
            return frozenset(name for name, known in self._clients.items() if known.standing is Standing.REVOKED)

    def _revoke(self, name: ClientId, reason: str, now: float, by: str) -> Client | None:
        """The client as it is revoked; one that was revoked before stays as it is."""
        with self._people_lock:
            known = self._clients.get(name)
            if known is not None and known.standing is not Standing.REVOKED:
                known = self._clients[name] = replace(known, standing=Standing.REVOKED, revoked=now, reason=reason)
                self.record([entries.about_client("revoked", name, now, by, reason=reason[: entries.MOST_WORDS])])
            return known
