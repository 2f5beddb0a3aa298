"""A journal's people within a process: invites and clients."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterable
from dataclasses import replace

from tideline.core.run import ClientId
from tideline.engine.audit import entries
from tideline.engine.audit.entries import begun
from tideline.engine.audit.log import ALL, About, AuditEvent, Entry, Tip, chained
from tideline.engine.model.accounts import ApiKey, Client, Invite, Keys, Standing
from tideline.engine.model.transitions import rekeyed


class MemoryAudit:
    """Entries in a list. Who writes one holds the lock of what it did."""

    def __init__(self) -> None:
        super().__init__()
        self._audit_lock = threading.Lock()
        self._entries: list[Entry] = chained(Tip(), [begun(0.0, secrets.token_hex(8), 0, 0, 0)])

    def record(self, events: Iterable[AuditEvent]) -> None:
        with self._audit_lock:
            last = self._entries[-1]
            self._entries += chained(Tip(last.seq, last.hash), events)

    def audit(self, after: int = 0, limit: int | None = None, about: About = ALL) -> tuple[Entry, ...]:
        with self._audit_lock:
            found = [entry for entry in self._entries if entry.seq > after and about.fits(entry)]
        return tuple(found[:limit])

    def audit_tip(self) -> Tip:
        with self._audit_lock:
            return Tip(self._entries[-1].seq, self._entries[-1].hash)


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

    def rekey(self, name: ClientId, before: str, keys: Keys, protocol: int, now: float = 0.0, handover: str = "") -> bool:
        with self._people_lock:
            known = self._clients.get(name)
            if known is None or known.sign_key != before:
                return False
            self._clients[name] = rekeyed(known, keys, protocol, handover)
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


class MemoryKeys(MemoryAudit):
    """A journal's keys, in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self._keys_lock = threading.Lock()
        self._keys: dict[str, ApiKey] = {}

    def add_key(self, key: ApiKey) -> bool:
        with self._keys_lock:
            taken = any(k.id == key.id or (k.name == key.name and k.revoked is None) for k in self._keys.values())
            if not taken:
                self._keys[key.id] = key
                self.record([entries.key_made(key)])
            return not taken

    def api_keys(self) -> tuple[ApiKey, ...]:
        with self._keys_lock:
            return tuple(sorted(self._keys.values(), key=lambda k: (k.created, k.id)))

    def revoke_key(self, name: str, now: float, by: str = "") -> bool:
        with self._keys_lock:
            found = [k for k in self._keys.values() if k.name == name and k.revoked is None]
            self._keys.update({k.id: replace(k, revoked=now) for k in found})
            self.record([entries.key_ended(name, now, by)] if found else [])
            return bool(found)

    def used_key(self, key_id: str, now: float) -> None:
        with self._keys_lock:
            known = self._keys.get(key_id)
            if known is not None and (known.last_used is None or known.last_used < now):
                self._keys[key_id] = replace(known, last_used=now)
