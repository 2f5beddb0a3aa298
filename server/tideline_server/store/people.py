"""Invites and clients."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, select, update

from tideline.core.run import ClientId
from tideline.engine.rows import Client, Invite
from tideline_server.store.dialect import added, upsert
from tideline_server.store.schema import clients, invites


def invite_of(row: Row[Any]) -> Invite:
    """An invite from its columns."""
    return Invite(**row._mapping)


def client_of(row: Row[Any]) -> Client:
    """A client from its columns."""
    return Client(**{**row._mapping, "roles": tuple(row.roles)})


def add_invite(connection: Connection, given: Invite) -> None:
    """Write an invite. One that is there stays as it is: a token that was used must not become fresh again."""
    upsert(connection, invites, [asdict(given)])


def invite(connection: Connection, token_hash: str) -> Invite | None:
    """The invite of a token."""
    row = connection.execute(select(invites).where(invites.c.token_hash == token_hash)).one_or_none()
    return invite_of(row) if row else None


def enrol(connection: Connection, token_hash: str, client: Client) -> bool:
    """Use an unused invite and add the client. False where either is taken."""
    fresh = (invites.c.token_hash == token_hash) & (invites.c.used_by == "")
    if connection.execute(select(invites.c.name).where(fresh).with_for_update()).one_or_none() is None:
        return False
    if not added(connection, clients, asdict(client)):
        return False
    connection.execute(update(invites).where(fresh).values(used_by=client.name))
    return True


def known(connection: Connection, name: str) -> Client | None:
    """The client of a name."""
    row = connection.execute(select(clients).where(clients.c.name == name)).one_or_none()
    return client_of(row) if row else None


def everybody(connection: Connection) -> tuple[Client, ...]:
    """Every client, by name."""
    return tuple(sorted(map(client_of, connection.execute(select(clients))), key=lambda c: c.name))


def saw(connection: Connection, name: ClientId, now: float, version: str | None, roles: tuple[str, ...] | None) -> None:
    """Note that a client lives; a version and roles that it told replace those known."""
    told: dict[str, Any] = {"version": version} if version else {}
    told |= {"roles": roles} if roles else {}
    connection.execute(update(clients).where(clients.c.name == name).values(seen=now, **told))
