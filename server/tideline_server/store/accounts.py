"""Invites, clients and API keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, bindparam, or_, select, update

from tideline.core.run import ClientId
from tideline.engine.audit.log import Tip
from tideline.engine.model.access.projects import EVERY, shares
from tideline.engine.model.accounts import ApiKey, Client, Handover, Invite, KeyRole, Keys, Session, ShownLedger, Standing
from tideline.engine.model.transitions import ledger_shown, let_on, rekeyed, sessioned, succeeding
from tideline_server.store.access.projects import admit_members
from tideline_server.store.database.dialect import INSERTS, added
from tideline_server.store.listings import in_batches
from tideline_server.store.schema import GOOD, api_keys, clients, invites

LAST_SEEN = select(clients.c.name, clients.c.seen, clients.c.projects).where(
    clients.c.name.in_(bindparam("names", expanding=True))
)
SEEN = update(clients).where(clients.c.name == bindparam("who")).values(seen=bindparam("at"))

NOTE_LEDGER = (
    update(clients)
    .where(
        clients.c.name == bindparam("who"),
        clients.c.ledger_now.is_(None),
        or_(clients.c.ledger_entries.is_(None), clients.c.ledger_entries < bindparam("entries")),
    )
    .values(ledger_entries=bindparam("entries"), ledger_hash=bindparam("hash"))
)
NOTE_CHARGES = (
    update(clients)
    .where(clients.c.name == bindparam("who"), or_(clients.c.charged.is_(None), clients.c.charged < bindparam("total")))
    .values(charged=bindparam("total"), charged_at=bindparam("at"))
)


def spend(connection: Connection, invite: str, used_by: str) -> None:
    """Note that an invite is used up. invite: the beginning of its token's hash."""
    fresh = invites.c.token_hash.startswith(invite, autoescape=True) & (invites.c.used_by == "")
    connection.execute(update(invites).where(fresh).values(used_by=used_by))


def client_of(row: Row[Any]) -> Client:
    handovers = tuple(Handover(Keys(**each["keys"]), each["signature"]) for each in row.handovers or ())
    lists = {name: tuple(row._mapping[name] or ()) for name in ("roles", "doubles", "shut", "projects")}
    return Client(**{**row._mapping, **lists, "standing": Standing(row.standing), "handovers": handovers})


def add_invite(connection: Connection, given: Invite) -> bool:
    """Write an invite. One that is there stays (False): a used token must not become fresh again."""
    return added(connection, invites, asdict(given))


def invite(connection: Connection, token_hash: str) -> Invite | None:
    row = connection.execute(select(invites).where(invites.c.token_hash == token_hash)).one_or_none()
    return Invite(**row._mapping) if row else None


def enrol(connection: Connection, token_hash: str, client: Client) -> bool:
    """Use an unused invite and add the client. False where either is taken; the name of a revoked client is free.

    Raises Refused where a quota of sites is reached.
    """
    fresh = (invites.c.token_hash == token_hash) & (invites.c.used_by == "")
    if connection.execute(select(invites.c.name).where(fresh).with_for_update()).one_or_none() is None:
        return False
    if (before := known(connection, client.name)) is None or before.standing is Standing.REVOKED:
        admit_members(connection, client.projects)
    if not added(connection, clients, asdict(client)) and not replaced(connection, succeeding(before, client)):
        return False
    connection.execute(update(invites).where(fresh).values(used_by=client.name))
    return True


def replaced(connection: Connection, client: Client) -> bool:
    """Replace a revoked client of the same name. False if there is none."""
    revoked = (clients.c.name == client.name) & (clients.c.standing == Standing.REVOKED)
    return connection.execute(update(clients).where(revoked).values(asdict(client))).rowcount == 1


def known(connection: Connection, name: str) -> Client | None:
    row = connection.execute(select(clients).where(clients.c.name == name)).one_or_none()
    return client_of(row) if row else None


def everybody(connection: Connection) -> tuple[Client, ...]:
    return tuple(sorted(map(client_of, connection.execute(select(clients))), key=lambda c: c.name))


def last_seen(connection: Connection, names: Collection[ClientId], scope: str = EVERY) -> dict[ClientId, float]:
    rows = in_batches(connection, LAST_SEEN, "names", names)
    return {ClientId(row.name): row.seen for row in rows if shares(scope, row.projects)}


def saw(
    connection: Connection,
    name: ClientId,
    now: float,
    version: str | None,
    roles: tuple[str, ...] | None,
    device: str | None,
) -> tuple[str, ...] | None:
    """Note that a client lives, and the version, roles and device that it tells. Gives its roles from before if they changed."""
    changes: dict[str, Any] = {name: value for name, value in (("version", version), ("roles", roles)) if value}
    changes |= {} if device is None else {"device": device or None}
    mine = clients.c.name == name
    before = connection.scalar(select(clients.c.roles).where(mine).with_for_update()) if roles else None
    connection.execute(update(clients).where(mine).values(seen=now, **changes))
    return None if before is None or set(before) == set(roles or ()) else tuple(before)


def saw_all(connection: Connection, names: Collection[ClientId], now: float) -> None:
    """Note that clients live. Sorted by name, so that two writers never deadlock."""
    connection.execute(SEEN, [{"who": name, "at": now} for name in sorted(names)])


def rekey(connection: Connection, name: ClientId, before: str, keys: Keys, handover: str) -> bool:
    """Give a client new keys if it still has those from before."""
    same = (clients.c.name == name) & (clients.c.sign_key == before)
    row = connection.execute(select(clients).where(same).with_for_update()).one_or_none()
    if row is None:
        return False
    connection.execute(update(clients).where(same).values(asdict(rekeyed(client_of(row), keys, handover))))
    return True


def approve(connection: Connection, name: ClientId) -> bool:
    pending = (clients.c.name == name) & (clients.c.standing == Standing.PENDING)
    return connection.execute(update(clients).where(pending).values(standing=Standing.APPROVED)).rowcount == 1


def begin_session(connection: Connection, name: ClientId, session: Session, now: float) -> Client | None:
    """Note a session. Gives the client if this made it doubled."""
    before = locked(connection, name)
    after = before and sessioned(before, session, now)
    if before is None or after is None or after == before:
        return None
    connection.execute(update(clients).where(clients.c.name == name).values(asdict(after)))
    return after if after.standing is not before.standing else None


def note_ledgers(connection: Connection, reported: Mapping[ClientId, Tip], charged: Mapping[ClientId, tuple[int, float]]) -> None:
    """Note the last entries of ledgers, and charges. Sorted by name, so that two writers never deadlock."""
    if reported:
        ends = [{"who": name, "entries": tip.seq, "hash": tip.hash} for name, tip in sorted(reported.items())]
        connection.execute(NOTE_LEDGER, ends)
    if charged:
        totals = [{"who": name, "total": total, "at": now} for name, (total, now) in sorted(charged.items())]
        connection.execute(NOTE_CHARGES, totals)


def show_ledger(connection: Connection, name: ClientId, shown: ShownLedger) -> tuple[Client, Client] | None:
    """Compare a ledger. Gives the client before and after, if this changed it."""
    before = locked(connection, name)
    after = before and ledger_shown(before, shown)
    if before is None or after is None or after == before:
        return None
    connection.execute(update(clients).where(clients.c.name == name).values(asdict(after)))
    return before, after


def go_on(connection: Connection, name: ClientId, session: Session, now: float) -> bool:
    """Let one session of a doubled client go on."""
    known = locked(connection, name)
    if known is None or known.standing is not Standing.DOUBLED or str(session) not in known.doubles:
        return False
    connection.execute(update(clients).where(clients.c.name == name).values(asdict(let_on(known, session, now))))
    return True


def locked(connection: Connection, name: ClientId) -> Client | None:
    """A client, which nobody else changes until this transaction ends."""
    row = connection.execute(select(clients).where(clients.c.name == name).with_for_update()).one_or_none()
    return client_of(row) if row else None


def ask_rotation(connection: Connection, name: ClientId) -> bool:
    """Ask a client for new keys. False if there is no such client, or it is asked already."""
    unasked = (clients.c.name == name) & clients.c.rotate.is_(False)
    return connection.execute(update(clients).where(unasked).values(rotate=True)).rowcount == 1


def revoke(connection: Connection, name: ClientId, reason: str, now: float) -> tuple[Client | None, bool]:
    """Revoke a client unless it is revoked. Gives the client, and whether this call revoked it."""
    standing = (clients.c.name == name) & (clients.c.standing != Standing.REVOKED)
    changes = {"standing": Standing.REVOKED, "revoked": now, "reason": reason}
    done = connection.execute(update(clients).where(standing).values(**changes)).rowcount == 1
    return known(connection, name), done


def add_key(connection: Connection, key: ApiKey) -> bool:
    """Write a key. False if its id is known, or if a good key has its name."""
    statement = INSERTS[connection.dialect.name](api_keys).on_conflict_do_nothing().returning(api_keys.c.id)
    return connection.execute(statement, asdict(key) | {"role": key.role.value}).one_or_none() is not None


def all_keys(connection: Connection) -> tuple[ApiKey, ...]:
    rows = connection.execute(select(api_keys).order_by(api_keys.c.created, api_keys.c.id))
    return tuple(ApiKey(**{**row._mapping, "role": KeyRole(row.role)}) for row in rows)


def revoke_key(connection: Connection, name: str, now: float) -> bool:
    """Revoke the good key of this name. False if there is none."""
    found = update(api_keys).where(api_keys.c.name == name, GOOD).values(revoked=now).returning(api_keys.c.id)
    return connection.execute(found).one_or_none() is not None


def use_key(connection: Connection, key_id: str, now: float) -> None:
    """Note when a key was used, unless a later time is known."""
    earlier = or_(api_keys.c.last_used.is_(None), api_keys.c.last_used < now)
    connection.execute(update(api_keys).where(api_keys.c.id == key_id, earlier).values(last_used=now))
