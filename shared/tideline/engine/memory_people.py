"""A journal's people within a process: invites and clients."""

from __future__ import annotations

import threading
from dataclasses import replace

from tideline.core.run import ClientId
from tideline.engine.rows import Client, Invite


class MemoryPeople:
    """Invites and clients, in dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self._people_lock = threading.Lock()
        self._invites: dict[str, Invite] = {}
        self._clients: dict[str, Client] = {}

    def add_invite(self, invite: Invite) -> None:
        with self._people_lock:
            self._invites.setdefault(invite.token_hash, invite)

    def invite(self, token_hash: str) -> Invite | None:
        return self._invites.get(token_hash)

    def enrol(self, token_hash: str, client: Client) -> bool:
        with self._people_lock:
            invite = self._invites.get(token_hash)
            if invite is None or invite.used_by or client.name in self._clients:
                return False
            self._invites[token_hash] = replace(invite, used_by=client.name)
            self._clients[client.name] = client
            return True

    def client(self, name: str) -> Client | None:
        return self._clients.get(name)

    def clients(self) -> tuple[Client, ...]:
        with self._people_lock:
            return tuple(self._clients[n] for n in sorted(self._clients))

    def saw(self, name: ClientId, now: float, version: str | None = None, roles: tuple[str, ...] | None = None) -> None:
        with self._people_lock:
            if name in self._clients:
                old = self._clients[name]
                self._clients[name] = replace(old, seen=now, version=version or old.version, roles=roles or old.roles)
