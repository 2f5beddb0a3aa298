"""A journal's witness within a process: the audit events that a restored database must not forget."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tideline.archive.disk.spill import Spill
from tideline.core.run import ClientId
from tideline.engine.audit import entries
from tideline.engine.audit.log import AuditEvent, Entry, Tip, chained
from tideline.engine.audit.witness import CONFIRMED, RESTORED, WITNESSED, Mark, confirmed, keys_in
from tideline.engine.model.orders import OrderRow
from tideline.engine.simulation.accounts import MemoryAccounts


class MemoryWitness(MemoryAccounts):
    """A list of records beside the accounts."""

    def __init__(self, spill: Spill | None = None) -> None:
        super().__init__(spill)
        self._witness: list[Entry] = []
        self._secret = secrets.token_hex(32)

    @abstractmethod
    def revoke(self, name: ClientId, reason: str, now: float, by: str = "") -> tuple[OrderRow, ...]:
        """As the journal does."""

    def record(self, events: Iterable[AuditEvent]) -> None:
        with self._lock:
            new = list(events)
            super().record(new)
            self._witness += chained(self._witness_tip(), [event for event in new if event.kind in WITNESSED])

    def _witness_tip(self) -> Tip:
        return Tip(self._witness[-1].seq, self._witness[-1].hash) if self._witness else Tip()

    def witness_mark(self) -> Mark:
        with self._lock:
            restores = [entry for entry in self._witness if entry.kind in (RESTORED, CONFIRMED)]
            return Mark(
                tip=self._witness_tip(),
                chain=self._chain_id[: entries.HASH],
                secret=self._secret,
                restored=restores[-1] if restores and restores[-1].kind == RESTORED else None,
                lost_at=max((entry.seq for entry in restores if entry.details.get("lost")), default=0),
            )

    def witness(self, after: int = 0) -> tuple[Entry, ...]:
        with self._lock:
            return tuple(entry for entry in self._witness if entry.seq > after)

    def catch_up(self, missing: Sequence[Entry], found: AuditEvent, known: int, tip: Tip | None = None) -> bool:
        with self._lock:
            if self._caught_up(missing, tip):
                return False
            own = [entry for entry in self._witness if entry.seq > known]
            self._witness = [*(entry for entry in self._witness if entry.seq <= known), *missing]
            self._witness += chained(tip or self._witness_tip(), own)
            for entry in missing:
                self._apply(entry)
            ended = {i: s if s.ended is not None else replace(s, ended=found.at) for i, s in self._user_sessions.items()}
            self._user_sessions = ended
            super().record([found])
            self._witness += chained(tip if tip and not own else self._witness_tip(), [found])
            return True

    def _caught_up(self, missing: Sequence[Entry], tip: Tip | None) -> bool:
        known = {entry.hash for entry in self._witness}
        return all(entry.hash in known for entry in missing) and (tip is None or tip.seq < self._witness_tip().seq)

    def _apply(self, entry: Entry) -> None:
        """What a record says, done once more."""
        name = ClientId(entry.client)
        if entry.kind == "enrolled":
            spent = str(entry.details["invite"])
            used = {h: replace(i, used_by=name) for h, i in self._invites.items() if h.startswith(spent) and not i.used_by}
            self._invites.update(used)
        elif entry.kind == "key_ended":
            self.revoke_key(str(entry.details["name"]), entry.at, entry.by)
        elif entry.kind == "revoked":
            self.revoke(name, str(entry.details["reason"]), entry.at, entry.by)
        elif entry.kind == "rotated" and name in self._clients and self._clients[name].keys != keys_in(entry):
            before = self._clients[name].sign_key
            self.rekey(name, before, keys_in(entry), entry.at, str(entry.details["handover"]))

    def confirm_restore(self, by: str, now: float) -> bool:
        with self._lock:
            waits = self.witness_mark().restored is not None
            self.record([confirmed(by, now)] if waits else [])
            return waits
