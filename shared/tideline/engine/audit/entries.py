"""What the audit log is told of each deed. Plain data without a secret: of tokens and keys there is the beginning of a hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from typing import Any

from tideline.core.run import ClientId
from tideline.core.signing import fingerprint
from tideline.engine.audit.log import BEGUN, Deed
from tideline.engine.model.api_keys import ApiKey
from tideline.engine.model.clients import Client, Invite, Keys
from tideline.engine.model.envelopes import Envelope
from tideline.engine.model.files import Files
from tideline.engine.model.orders import OrderRow, OrderStatus, Reply
from tideline.engine.model.runs import RunRow, Status
from tideline.engine.ports.runs import Advance

MOST_FILES = 64  # of a message that are told one by one
MOST_WORDS = 500  # characters of a reason
HASH = 16  # characters by which a token or a key is known

KINDS = (
    BEGUN,
    *("invited", "enrolled", "approved", "revoked", "rotation_asked", "rotated", "roles_changed", "key_made", "key_ended"),
    *("run_started", "run_resumed", *(f"run_{s.value}" for s in (Status.STALLED, Status.COMPLETED, Status.FAILED))),
    *(f"run_{Status.CANCELLED.value}", "round_closed", "asked_again"),
    *("reply_accepted", "reply_late", "reply_failed", "reply_refused", "sign_in_refused", "parts_swept"),
)


def begun(at: float, chain: str, clients: int, runs: int, keys: int) -> Deed:
    """The log begins. What the database held by then was done unseen. chain: tells this chain from every other."""
    return Deed(BEGUN, at, told={"chain": chain, "clients": clients, "runs": runs, "keys": keys})


def invited(invite: Invite, by: str, now: float) -> Deed:
    """A token was made."""
    told = {"invite": invite.token_hash[:HASH], "expires": invite.expires, "hold": invite.hold, "labels": dict(invite.labels)}
    return Deed("invited", now, by, invite.name, told=told)


def enrolled(client: Client, token_hash: str) -> Deed:
    """An agent used its token."""
    told = {"invite": token_hash[:HASH], "keys": shown(client.keys), "roles": list(client.roles)}
    return Deed("enrolled", client.enrolled, client=client.name, told=told | {"standing": client.standing.value})


def rotated(name: ClientId, keys: Keys, now: float) -> Deed:
    """A client has new keys."""
    return Deed("rotated", now, client=name, told={"keys": shown(keys)})


def roles_changed(name: ClientId, before: Iterable[str], roles: Iterable[str], now: float) -> Deed:
    """A client came back with other roles, which say what it may be asked for."""
    return Deed("roles_changed", now, client=name, told={"before": list(before), "roles": list(roles)})


def shown(keys: Keys | None) -> str:
    """The fingerprint of a client's keys; nothing of one that has none."""
    try:
        return "" if keys is None else fingerprint(bytes.fromhex(keys.sign), bytes.fromhex(keys.receive))
    except ValueError:
        return f"{keys.sign if keys else ''}"[:HASH]


def about_client(kind: str, name: ClientId, now: float, by: str, **told: Any) -> Deed:
    """A person decided something about a client."""
    return Deed(kind, now, by, name, told=told)


def key_made(key: ApiKey) -> Deed:
    """Somebody was given a key of the people's door."""
    told = {"name": key.name, "id": key.id, "role": key.role.value, "expires": key.expires}
    return Deed("key_made", key.created, key.created_by, told=told)


def key_ended(name: str, now: float, by: str) -> Deed:
    """A key of the people's door opens nothing any more."""
    return Deed("key_ended", now, by, told={"name": name})


def parts_swept(dropped: int, freed: int, by: str, now: float) -> Deed:
    """A person had parts destroyed that nothing needs: how many, and their bytes."""
    return Deed("parts_swept", now, by, told={"dropped": dropped, "freed": freed})


def run_started(row: RunRow, by: str) -> Deed:
    """A run was written."""
    told = {"method": row.method, "roster": dict(row.roster), "contract": row.spec.contract}
    told |= {"weights": row.spec.weights} if row.spec.weights else {}
    return Deed("run_started", row.created, by, run=row.id, told=told)


def run_settled(row: RunRow, status: Status, cause: str, by: str, now: float) -> Deed:
    """A run stalled, failed or was cancelled."""
    return Deed(f"run_{status.value}", now, by, run=row.id, told={"cursor": row.cursor, "cause": cause[:MOST_WORDS]})


def run_resumed(row: RunRow, asked: Iterable[OrderRow], by: str, now: float) -> Deed:
    """A person opened a stalled run again."""
    return Deed("run_resumed", now, by, run=row.id, told={"cursor": row.cursor, "sent": sent(asked)})


def round_ended(step: Advance, late: Collection[str]) -> list[Deed]:
    """A round was closed and the next one sent; with it, perhaps, the result was published."""
    closed = step.closed
    told: dict[str, Any] = {"cursor": closed.cursor, "next": step.cursor, "folded": list(closed.folded), "late": list(late)}
    made = [Deed("round_closed", closed.closed, run=step.run, told=told | {"sent": sent(step.orders)})]
    if step.status is Status.COMPLETED:
        made.append(Deed("run_completed", closed.closed, run=step.run, told={"result": listed(closed.state)}))
    return made


def asked_again(row: OrderRow) -> Deed:
    """An order was offered once more under a new name."""
    return Deed("asked_again", row.created, client=row.client, run=row.run, told=place(row) | {"sent": sent([row])})


def replied(row: OrderRow, reply: Reply, now: float) -> Deed:
    """A client answered an order; `row` has the answer."""
    if row.status is OrderStatus.ANSWERED:
        told = place(row) | listed(reply.files) | sealed_for(reply.sealed)
        return Deed("reply_accepted", now, client=row.client, run=row.run, told=told)
    if row.status is OrderStatus.EXPIRED:
        return Deed("reply_late", now, client=row.client, run=row.run, told=place(row))
    failure = reply.failure
    why = {"reason": failure.kind, "what": failure.what[:MOST_WORDS]} if failure else {}
    kind = "reply_refused" if reply.refused else "reply_failed"
    return Deed(kind, now, client=row.client, run=row.run, told=place(row) | why)


def sealed_for(envelopes: Iterable[Envelope]) -> dict[str, Any]:
    """What a reply brought for other sites: each value's digest, its sealed file, and who can open it; nothing if none."""
    told = [{"value": e.handle.digest, "file": [e.cipher, e.bytes], "to": sorted(e.keys)} for e in envelopes]
    return {"sealed": told[:MOST_FILES], "sealed_count": len(told)} if told else {}


def place(row: OrderRow) -> dict[str, Any]:
    """Which order."""
    return {"order": row.id, "cursor": row.cursor}


def sent(orders: Iterable[OrderRow]) -> list[dict[str, Any]]:
    """Who was sent what; whoever was sent the same stands together."""
    groups: dict[Files, list[str]] = {}
    for order in orders:
        groups.setdefault(order.files, []).append(order.client)
    return [{"to": sorted(to), **listed(files)} for files, to in groups.items()]


def listed(files: Files) -> dict[str, Any]:
    """Digests and sizes. Of many the root alone, which names the others, and a hash of the whole list."""
    if len(files) <= MOST_FILES:
        return {"files": [[digest, size] for digest, size in files]}
    text = json.dumps(files, separators=(",", ":"))
    more = {"count": len(files), "bytes": sum(size for _, size in files), "listing": hashlib.sha256(text.encode()).hexdigest()}
    return {"files": [list(files[0])], **more}
