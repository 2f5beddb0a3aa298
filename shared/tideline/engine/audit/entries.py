"""The audit log's entry for each event: plain data without a secret. Of tokens and keys it has the beginning of a hash."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Collection, Iterable

from tideline.core.asked.world import plain_world
from tideline.core.errors import FederationError
from tideline.core.run import ClientId, OrderId, RunId
from tideline.core.settings import Plain, plain
from tideline.core.signing import fingerprint
from tideline.engine.audit.archived import ARCHIVED
from tideline.engine.audit.log import BEGUN, AuditEvent
from tideline.engine.audit.witness import CONFIRMED, RESTORED
from tideline.engine.model.access.projects import ALL, DEFAULT, Project, Quota
from tideline.engine.model.access.user_sessions import UserSession
from tideline.engine.model.accounts import NAME, ApiKey, Client, Invite, Keys
from tideline.engine.model.deletion import Tombstone
from tideline.engine.model.intent import intent_of
from tideline.engine.model.notices import Outgoing, Target, place_of
from tideline.engine.model.orders import Envelope, Files, OrderRow, OrderStatus, Reply, hashed
from tideline.engine.model.runs import RunRow, Status
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.journal import Advance, Journal

MOST_FILES = 64  # of a message that are listed one by one
MOST_WORDS = 500  # characters of a reason
MOST_SETTINGS = 8192  # characters of a run's settings that are written out
HASH = 16  # characters by which a token or a key is known

PART_MENDED = "part_mended"
APPROVAL_AWAITED = "approval_awaited"
SIGNER_INTRODUCED = "signer_introduced"
KINDS = (
    BEGUN,
    *("invited", "enrolled", "approved", "revoked", "rotation_asked", "rotated", "roles_changed", "key_made", "key_ended"),
    *("run_started", "run_resumed", *(f"run_{s.value}" for s in (Status.STALLED, Status.COMPLETED, Status.FAILED))),
    *(f"run_{Status.CANCELLED.value}", "run_deleted", "round_closed", "asked_again"),
    *("reply_accepted", "reply_late", "reply_failed", "reply_refused", "sign_in_refused", "parts_swept"),
    *(PART_MENDED, "parts_verified"),
    *(RESTORED, CONFIRMED, "doubled", "ledger_differs", "ledger_fits", "ledger_accepted"),
    ARCHIVED,
    *("project_made", "project_limited", "project_ended", "projects_changed", "signed_in", "session_ended"),
    *(APPROVAL_AWAITED, "target_added", "target_removed", "target_ended", "notice_given_up"),
    SIGNER_INTRODUCED,
)


def begun(at: float, chain: str) -> AuditEvent:
    """The log begins. chain: tells this chain from every other."""
    return AuditEvent(BEGUN, at, details={"chain": chain})


def invited(invite: Invite, by: str, now: float) -> AuditEvent:
    details: dict[str, Plain] = {"invite": invite.token_hash[:HASH], "expires": invite.expires}
    details |= {"hold": invite.hold, "labels": dict(invite.labels)}
    details |= of_project(invite.project)
    return AuditEvent("invited", now, by, invite.name, details=details)


def enrolled(client: Client, token_hash: str) -> AuditEvent:
    details = {"invite": token_hash[:HASH], "keys": shown(client.keys), "roles": list(client.roles)}
    return AuditEvent("enrolled", client.enrolled, client=client.name, details=details | {"standing": client.standing.value})


def rotated(name: ClientId, keys: Keys, now: float, handover: str = "") -> AuditEvent:
    """A client has new keys: all that is public of them, so that a restored database can take them again."""
    details = {"keys": shown(keys), "sign": keys.sign, "receive": keys.receive, "handover": handover}
    return AuditEvent("rotated", now, client=name, details=details)


def roles_changed(name: ClientId, before: Iterable[str], roles: Iterable[str], now: float) -> AuditEvent:
    """A client came back with other roles, which say what it may be asked for."""
    return AuditEvent("roles_changed", now, client=name, details={"before": list(before), "roles": list(roles)})


def shown(keys: Keys) -> str:
    try:
        return fingerprint(bytes.fromhex(keys.sign), bytes.fromhex(keys.receive))
    except ValueError:
        return keys.sign[:HASH]


def doubled(client: Client, now: float) -> AuditEvent:
    """Two agents had a client's keys at once, or one whose home is older than it was."""
    return AuditEvent("doubled", now, client=client.name, details={"sessions": list(client.doubles)})


def ledger_shown(before: Client, after: Client, accepted: bool, now: float) -> list[AuditEvent]:
    """A client's ledger has no longer the entry that it reported, or has it again, or its owner goes on without it."""
    if (before.ledger_now is None) == (after.ledger_now is None):
        return []
    kind = "ledger_differs" if before.ledger_now is None else "ledger_accepted" if accepted else "ledger_fits"
    shown = after.ledger_entries if after.ledger_now is None else after.ledger_now
    details = {"reported": before.ledger_entries, "hash": before.ledger_hash, "entries": shown}
    return [AuditEvent(kind, now, client=after.name, details=details)]


def about_client(kind: str, name: ClientId, now: float, by: str, **details: Plain) -> AuditEvent:
    return AuditEvent(kind, now, by, name, details=details)


def signed_in(session: UserSession) -> AuditEvent:
    """A user has a session from now on. Of the provider's tokens there is nothing."""
    details: dict[str, Plain] = {"session": session.id, "expires": session.expires}
    return AuditEvent("signed_in", session.created, session.name, details=details)


def session_ended(session_id: str, now: float, by: str) -> AuditEvent:
    return AuditEvent("session_ended", now, by, details={"session": session_id})


def of_project(project: str) -> dict[str, Plain]:
    """In whose project, unless it is the default one."""
    return {} if project == DEFAULT else {"project": project}


def project_made(project: Project) -> AuditEvent:
    details: dict[str, Plain] = {"project": project.name, "quota": dict(vars(project.quota))}
    return AuditEvent("project_made", project.created, project.created_by, details=details)


def project_limited(name: str, quota: Quota, now: float, by: str) -> AuditEvent:
    return AuditEvent("project_limited", now, by, details={"project": name, "quota": dict(vars(quota))})


def project_ended(name: str, now: float, by: str) -> AuditEvent:
    return AuditEvent("project_ended", now, by, details={"project": name})


def assigned(name: ClientId, before: Iterable[str], projects: Iterable[str], now: float, by: str) -> AuditEvent:
    """A site serves other projects than before."""
    return AuditEvent("projects_changed", now, by, name, details={"before": list(before), "projects": list(projects)})


def key_made(key: ApiKey) -> AuditEvent:
    details: dict[str, Plain] = {"name": key.name, "id": key.id, "role": key.role.value, "expires": key.expires}
    return AuditEvent("key_made", key.created, key.created_by, details=details | of_project(key.project))


def key_ended(name: str, now: float, by: str) -> AuditEvent:
    return AuditEvent("key_ended", now, by, details={"name": name})


def signer_introduced(fingerprint: str, key: str, by: str, now: float) -> AuditEvent:
    """A key signs a dossier for the first time. key: the public one, in hexadecimal."""
    return AuditEvent(SIGNER_INTRODUCED, now, by, details={"fingerprint": fingerprint, "key": key})


def parts_swept(dropped: int, freed: int, by: str, now: float) -> AuditEvent:
    """A person had parts destroyed that nothing needs: how many, and their bytes."""
    return AuditEvent("parts_swept", now, by, details={"dropped": dropped, "freed": freed})


def approval_awaited(order: OrderId, client: ClientId, run: RunId, now: float) -> AuditEvent:
    """A site lets an order wait until its owner has approved the run."""
    return AuditEvent(APPROVAL_AWAITED, now, client=client, run=run, details={"order": order})


def target_added(target: Target) -> AuditEvent:
    """Somebody is to be notified. The address may hold a secret: its host alone is written down."""
    details = {"on": [kind.value for kind in target.kinds], "form": target.form.value, "to": place_of(target.url)}
    return AuditEvent("target_added", target.created, target.created_by, details=about_target(target) | details)


def target_removed(target: Target, by: str, now: float) -> AuditEvent:
    return AuditEvent("target_removed", now, by, details=about_target(target))


def target_ended(target: Target, reason: str, now: float) -> AuditEvent:
    """A receiver said that it is gone for good."""
    return AuditEvent("target_ended", now, details=about_target(target) | {"reason": reason[:MOST_WORDS]})


def notice_given_up(outgoing: Outgoing, target: Target, reason: str, now: float) -> AuditEvent:
    """A notice was tried for a day, and nobody took it."""
    details = {"notice": outgoing.id, "on": outgoing.notice.kind.value, "tries": outgoing.attempts, "reason": reason[:MOST_WORDS]}
    return AuditEvent("notice_given_up", now, run=outgoing.notice.run, details=about_target(target) | details)


def about_target(target: Target) -> dict[str, Plain]:
    return {"target": target.name, "project": target.project or ALL}


def part_mended(run: str, part: str, how: str, client: str, now: float) -> AuditEvent:
    """A part of a run's was damaged or gone, and is made again."""
    return AuditEvent(PART_MENDED, now, client=client, run=run, details={"part": part, "how": how})


def parts_verified(damaged: Collection[str], by: str, now: float) -> AuditEvent:
    """Parts were read and found to be damaged: how many, and the first of them."""
    details = {"damaged": len(damaged), "parts": sorted(damaged)[:MOST_FILES]}
    return AuditEvent("parts_verified", now, by, details=details)


def run_started(row: RunRow, by: str) -> AuditEvent:
    """What was asked for: the same that the run's sites write down."""
    spec = row.spec
    details: dict[str, Plain] = {"method": row.method, "roster": plain(row.roster), "contract": spec.contract}
    details |= {name: value for name, value in intent_of(row).plain().items() if name not in ("by", "sites")}  # it has both
    settings: dict[str, Plain] = {"config": dict(spec.config), "world": plain_world(spec.world), "seed": spec.seed}
    details |= settings if len(json.dumps(settings)) <= MOST_SETTINGS else {"settings": hashed("settings", settings)}
    return AuditEvent("run_started", row.created, by, run=row.id, details=details)


def run_deleted(of: Tombstone) -> AuditEvent:
    """A run was deleted: what remains of it."""
    details = {"name": of.name, "status": of.status, "state": of.state_digest or "", "rule": of.rule}
    return AuditEvent("run_deleted", of.deleted, of.by, run=of.run, details=details)


def run_ended(row: RunRow, status: Status, cause: str, by: str, now: float) -> AuditEvent:
    return AuditEvent(f"run_{status.value}", now, by, run=row.id, details={"cursor": row.cursor, "cause": cause[:MOST_WORDS]})


def run_resumed(row: RunRow, asked: Iterable[OrderRow], by: str, now: float) -> AuditEvent:
    quorum: dict[str, Plain] = {} if row.quorum is None else {"min_replies": row.quorum}
    return AuditEvent("run_resumed", now, by, run=row.id, details={"cursor": row.cursor, "sent": sent(asked), **quorum})


def round_ended(step: Advance, late: Collection[str]) -> list[AuditEvent]:
    """A round was closed and the next one sent; with it, perhaps, the result was published."""
    closed = step.closed
    details: dict[str, Plain] = {"cursor": closed.cursor, "next": step.cursor, "folded": list(closed.folded), "late": list(late)}
    made = [AuditEvent("round_closed", closed.closed, run=step.run, details=details | {"sent": sent(step.orders)})]
    if step.status is Status.COMPLETED:
        made.append(AuditEvent("run_completed", closed.closed, run=step.run, details={"result": listed(closed.state)}))
    return made


def asked_again(row: OrderRow) -> AuditEvent:
    return AuditEvent("asked_again", row.created, client=row.client, run=row.run, details=place(row) | {"sent": sent([row])})


def replied(row: OrderRow, reply: Reply, now: float) -> AuditEvent:
    if row.status is OrderStatus.ANSWERED:
        details = place(row) | listed(reply.files) | sealed_for(reply.sealed)
        return AuditEvent("reply_accepted", now, client=row.client, run=row.run, details=details)
    if row.status is OrderStatus.EXPIRED:
        return AuditEvent("reply_late", now, client=row.client, run=row.run, details=place(row))
    failure = reply.failure
    why = {"reason": failure.kind, "what": failure.what[:MOST_WORDS]} if failure else {}
    kind = "reply_refused" if reply.refused else "reply_failed"
    return AuditEvent(kind, now, client=row.client, run=row.run, details=place(row) | why)


def sealed_for(envelopes: Iterable[Envelope]) -> dict[str, Plain]:
    """What a reply brought for other sites: each value's digest, its sealed file, and who can open it; nothing if none."""
    details: list[dict[str, Plain]] = [
        {"value": e.handle.digest, "file": [e.cipher, e.bytes], "to": sorted(e.keys)} for e in envelopes
    ]
    return {"sealed": details[:MOST_FILES], "sealed_count": len(details)} if details else {}


def place(row: OrderRow) -> dict[str, Plain]:
    return {"order": row.id, "cursor": row.cursor}


def sent(orders: Iterable[OrderRow]) -> list[dict[str, Plain]]:
    groups: dict[Files, list[str]] = {}
    for order in orders:
        groups.setdefault(order.files, []).append(order.client)
    return [{"to": sorted(to), **listed(files)} for files, to in groups.items()]


def listed(files: Files) -> dict[str, Plain]:
    """Digests and sizes. Of many the root alone, which names the others, and a hash of the whole list."""
    if len(files) <= MOST_FILES:
        return {"files": [[digest, size] for digest, size in files]}
    text = json.dumps(files, separators=(",", ":"))
    size, listing = sum(size for _, size in files), hashlib.sha256(text.encode()).hexdigest()
    return {"files": [list(files[0])], "count": len(files), "bytes": size, "listing": listing}


HOUR = 3600.0
MOST = 60  # of one listener within an hour; the rest is counted, and the next entry has the number


class Refusals:
    """The refused sign-ins of one port. Any number of threads."""

    def __init__(self, journal: Journal, clock: Clock, port: str) -> None:
        self._journal, self._clock, self._port = journal, clock, port
        self._lock = threading.Lock()
        self._began, self._left_out = -math.inf, 0
        self._seen: set[tuple[str, str, str]] = set()

    def seen(self, who: str, address: str, why: str) -> AuditEvent | None:
        """What is to be written of a refusal, if anything is. Blocks on nothing. who: the name that was claimed, or nothing."""
        now, same = self._clock.now(), (who[:80], address, why)
        with self._lock:
            if not 0.0 <= now - self._began < HOUR:
                self._began, self._seen = now, set()
            if same in self._seen:
                return None
            if len(self._seen) >= MOST:
                self._left_out += 1
                return None
            self._seen.add(same)
            left_out, self._left_out = self._left_out, 0
        details = {"port": self._port, "claimed": who[:80], "address": address, "what": why[:MOST_WORDS], "untold": left_out}
        return AuditEvent("sign_in_refused", now, client=who if NAME.fullmatch(who) else "", details=details)

    def write(self, event: AuditEvent) -> None:
        """Write it. Where the journal is away it is counted as left out: a refusal needs no journal."""
        try:
            self._journal.record([event])
        except FederationError:
            with self._lock:
                self._left_out += 1 + int(event.details["untold"])
