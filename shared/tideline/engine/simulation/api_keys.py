"""A journal's API keys within a process."""

from __future__ import annotations

import threading
from dataclasses import replace

from tideline.engine.audit import entries
from tideline.engine.model.accounts import ApiKey
from tideline.engine.simulation.audit import MemoryAudit


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
