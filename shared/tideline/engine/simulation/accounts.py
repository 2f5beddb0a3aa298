"""A journal's clients, API keys, idempotency records and audit log within a process."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from tideline.archive.disk.spill import Spill
from tideline.core.run import ClientId
from tideline.core.settings import EMPTY, Plain
from tideline.engine.audit import entries
from tideline.engine.audit.log import ALL, About, AuditEvent, Entry, Mention, Tip, chained
from tideline.engine.coordinator.idempotency import KEPT_SECONDS, free, overtaken
from tideline.engine.model.access.once import Answer, IdempotencyRecord
from tideline.engine.model.access.projects import EVERY, shares
from tideline.engine.model.access.user_sessions import RETAINED_SECONDS, UserSession, listed
from tideline.engine.model.accounts import ApiKey, Client, Invite, Keys, Roles, Session, ShownLedger, Standing
from tideline.engine.model.transitions import ledger_shown, let_on, rekeyed, sessioned, succeeding
from tideline.engine.simulation.history import History


class MemoryAccounts:
    """Dictionaries, and a list of entries. One lock makes each method a transaction."""

    def __init__(self, spill: Spill | None = None) -> None:
        self._lock, self._spill = threading.RLock(), spill or Spill()
        self._entries: list[Entry] = chained(Tip(), [entries.begun(0.0, secrets.token_hex(8))])
        self._base, self._chain_id = Tip(), self._entries[0].hash
        self._unchained = self._audit_history()  # a simulation writes many, and mostly nobody reads them
        self._invites: dict[str, Invite] = {}
        self._clients: dict[ClientId, Client] = {}
        self._revoked: set[ClientId] = set()
        self._keys: dict[str, ApiKey] = {}
        self._user_sessions: dict[str, UserSession] = {}
        self._records: dict[str, IdempotencyRecord] = {}

    def record(self, events: Iterable[AuditEvent]) -> None:
        with self._lock:
            for event in events:
                self._unchained.append(event)

    def _chain(self) -> list[Entry]:
        """All entries, those that were written since the last time among them."""
        last, new = self._entries[-1], self._unchained
        self._entries += chained(Tip(last.seq, last.hash), new.since())
        self._unchained = self._audit_history()
        return self._entries

    def _audit_history(self) -> History[AuditEvent]:
        return History(self._spill, to_fields, lambda row: AuditEvent(*row))  # type: ignore[misc]

    def audit(self, after: int = 0, limit: int | None = None, about: About = ALL) -> tuple[Entry, ...]:
        with self._lock:
            found = [entry for entry in self._chain() if entry.seq > after and about.fits(entry)]
        return tuple(found[:limit])

    def mentions(self, after: int) -> tuple[int, frozenset[Mention]]:
        with self._lock:
            found = frozenset(Mention(entry.kind, entry.client, entry.run) for entry in self._chain() if entry.seq > after)
            return self.audit_tip().seq, found

    def audit_tip(self) -> Tip:
        with self._lock:
            last = self._chain()[-1]
            return Tip(last.seq, last.hash)

    def audit_base(self) -> Tip:
        with self._lock:
            return self._base

    def trim_audit(self, base: Tip, last: Tip, event: AuditEvent) -> bool:
        with self._lock:
            there = self._chain()
            at = next((i for i, entry in enumerate(there[:-1]) if (entry.seq, entry.hash) == (last.seq, last.hash)), None)
            if at is None or self._base != base:
                return False
            del there[: at + 1]
            self._base = last
            self.record([event])
            return True

    def add_invite(self, invite: Invite, by: str = "", now: float = 0.0) -> None:
        with self._lock:
            if invite.token_hash not in self._invites:
                self._invites[invite.token_hash] = invite
                self.record([entries.invited(invite, by, now)])

    def invite(self, token_hash: str) -> Invite | None:
        return self._invites.get(token_hash)

    def enrol(self, token_hash: str, client: Client) -> bool:
        with self._lock:
            invite, known = self._invites.get(token_hash), self._clients.get(client.name)
            taken = known is not None and known.standing is not Standing.REVOKED
            if invite is None or invite.used_by or taken:
                return False
            self._invites[token_hash] = replace(invite, used_by=client.name)
            self._clients[client.name] = succeeding(known, client)
            self._revoked.discard(client.name)
            self.record([entries.enrolled(client, token_hash)])
            return True

    def client(self, name: str) -> Client | None:
        return self._clients.get(ClientId(name))

    def clients(self) -> tuple[Client, ...]:
        with self._lock:
            return tuple(self._clients[n] for n in sorted(self._clients))

    def last_seen(self, names: Collection[ClientId], scope: str = EVERY) -> Mapping[ClientId, float]:
        with self._lock:
            known = [self._clients[name] for name in names if name in self._clients]
            return {each.name: each.seen for each in known if shares(scope, each.projects)}

    def saw(self, name: ClientId, now: float, version: str | None = None, roles: Roles = None, device: str | None = None) -> None:
        with self._lock:
            if name in self._clients:
                old = self._clients[name]
                known = old.device if device is None else device or None
                new = replace(old, seen=now, version=version or old.version, roles=roles or old.roles, device=known)
                self._clients[name] = new
                if roles and set(roles) != set(old.roles):
                    self.record([entries.roles_changed(name, old.roles, roles, now)])

    def saw_all(self, names: Collection[ClientId], now: float) -> None:
        for name in names:
            self.saw(name, now)

    def rekey(self, name: ClientId, before: str, keys: Keys, now: float = 0.0, handover: str = "") -> bool:
        with self._lock:
            known = self._clients.get(name)
            if known is None or known.sign_key != before:
                return False
            self._clients[name] = rekeyed(known, keys, handover)
            self.record([entries.rotated(name, keys, now, handover)])
            return True

    def approve(self, name: ClientId, by: str = "", now: float = 0.0) -> bool:
        with self._lock:
            known = self._clients.get(name)
            if known is None or known.standing is not Standing.PENDING:
                return False
            self._clients[name] = replace(known, standing=Standing.APPROVED)
            self.record([entries.about_client("approved", name, now, by)])
            return True

    def begin_session(self, name: ClientId, session: Session, now: float) -> bool:
        with self._lock:
            known = self._clients.get(name)
            if known is None:
                return False
            after = self._clients[name] = sessioned(known, session, now)
            new = after.standing is not known.standing
            self.record([entries.doubled(after, now)] if new else [])
            return new

    def let_on(self, name: ClientId, session: Session, by: str, now: float) -> bool:
        with self._lock:
            known = self._clients.get(name)
            if known is None or known.standing is not Standing.DOUBLED or str(session) not in known.doubles:
                return False
            self._clients[name] = let_on(known, session, now)
            self.record([entries.about_client("approved", name, now, by, session=str(session))])
            return True

    def note_ledgers(self, reported: Mapping[ClientId, Tip], charged: Mapping[ClientId, tuple[int, float]] = EMPTY) -> None:
        with self._lock:
            for name, (total, now) in charged.items():
                known = self._clients.get(name)
                if known is not None and (known.charged is None or known.charged < total):
                    self._clients[name] = replace(known, charged=total, charged_at=now)
            for name, tip in reported.items():
                known = self._clients.get(name)
                if known is not None and known.ledger_now is None and tip.seq > known.reported.seq:
                    self._clients[name] = replace(known, ledger_entries=tip.seq, ledger_hash=tip.hash)

    def show_ledger(self, name: ClientId, shown: ShownLedger, now: float) -> bool:
        with self._lock:
            known = self._clients.get(name)
            if known is None:
                return False
            after = self._clients[name] = ledger_shown(known, shown)
            self.record(events := entries.ledger_shown(known, after, shown.accepted, now))
            return bool(events) and after.ledger_now is not None

    def ask_rotation(self, name: ClientId, by: str = "", now: float = 0.0) -> None:
        with self._lock:
            if name in self._clients and not self._clients[name].rotate:
                self._clients[name] = replace(self._clients[name], rotate=True)
                self.record([entries.about_client("rotation_asked", name, now, by)])

    def _revoke(self, name: ClientId, reason: str, now: float, by: str) -> Client | None:
        """The client as it is revoked; one that was revoked before stays as it is."""
        with self._lock:
            known = self._clients.get(name)
            if known is not None and known.standing is not Standing.REVOKED:
                known = self._clients[name] = replace(known, standing=Standing.REVOKED, revoked=now, reason=reason)
                self._revoked.add(name)
                self.record([entries.about_client("revoked", name, now, by, reason=reason[: entries.MOST_WORDS])])
            return known

    def add_key(self, key: ApiKey) -> bool:
        with self._lock:
            taken = any(k.id == key.id or (k.name == key.name and k.revoked is None) for k in self._keys.values())
            if not taken:
                self._keys[key.id] = key
                self.record([entries.key_made(key)])
            return not taken

    def api_keys(self) -> tuple[ApiKey, ...]:
        with self._lock:
            return tuple(sorted(self._keys.values(), key=lambda k: (k.created, k.id)))

    def revoke_key(self, name: str, now: float, by: str = "") -> bool:
        with self._lock:
            found = [k for k in self._keys.values() if k.name == name and k.revoked is None]
            self._keys.update({k.id: replace(k, revoked=now) for k in found})
            self.record([entries.key_ended(name, now, by)] if found else [])
            return bool(found)

    def used_key(self, key_id: str, now: float) -> None:
        with self._lock:
            known = self._keys.get(key_id)
            if known is not None and (known.last_used is None or known.last_used < now):
                self._keys[key_id] = replace(known, last_used=now)

    def begin_user_session(self, session: UserSession) -> bool:
        with self._lock:
            known = {i: s for i, s in self._user_sessions.items() if s.expires >= session.created - RETAINED_SECONDS}
            taken = any(session.id == i or session.state_hash == s.state_hash for i, s in known.items())
            self._user_sessions = known if taken else known | {session.id: session}
            self.record([] if taken else [entries.signed_in(session)])
            return not taken

    def user_session(self, token_hash: str) -> UserSession | None:
        with self._lock:
            return next((each for each in self._user_sessions.values() if each.token_hash == token_hash), None)

    def user_sessions(self) -> tuple[UserSession, ...]:
        with self._lock:
            return listed(tuple(self._user_sessions.values()))

    def end_user_session(self, session_id: str, now: float, by: str = "") -> bool:
        with self._lock:
            known = self._user_sessions.get(session_id)
            if known is None or known.ended is not None:
                return False
            self._user_sessions[session_id] = replace(known, ended=now)
            self.record([entries.session_ended(session_id, now, by)])
            return True

    def used_user_session(self, session_id: str, now: float) -> None:
        with self._lock:
            known = self._user_sessions.get(session_id)
            if known is not None and (known.last_used is None or known.last_used < now):
                self._user_sessions[session_id] = replace(known, last_used=now)

    def reserve(self, idempotency_record: IdempotencyRecord, over: str = "") -> IdempotencyRecord:
        with self._lock:
            self._records = {k: e for k, e in self._records.items() if e.made >= idempotency_record.made - KEPT_SECONDS}
            known = self._records.setdefault(idempotency_record.key, idempotency_record)
            if free(known, idempotency_record, over):
                known = self._records[idempotency_record.key] = replace(known, worker=idempotency_record.worker)
            return known

    def choose(self, key: str, plan: Mapping[str, int]) -> Mapping[str, int]:
        with self._lock:
            known = self._records[key]
            if known.chosen is None:
                known = self._records[key] = replace(known, chosen=dict(plan))
            return known.chosen or {}

    def conclude(self, key: str, worker: str, answer: Answer) -> Answer:
        with self._lock:
            known = self._records.get(key)
            if known is not None and known.answer is not None:
                return known.answer
            self._records[key] = replace(self._held(key, worker), answer=answer, worker="")
            return answer

    def leave(self, key: str, worker: str) -> None:
        with self._lock:
            known = self._records.get(key)
            if known is not None and known.worker == worker:
                self._records[key] = replace(known, worker="")

    def _held(self, key: str, worker: str) -> IdempotencyRecord:
        known = self._records.get(key)
        if known is None or known.worker != worker:
            raise overtaken()
        return known


def to_fields(event: AuditEvent) -> Plain:
    return [event.kind, event.at, event.by, event.client, event.run, event.details]
