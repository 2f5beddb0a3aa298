"""Agents: who is enrolled, tokens for those to come, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body
from starlette.requests import Request
from starlette.responses import Response

from tideline.core.errors import ConfigRefused
from tideline.core.settings import EMPTY, parse, setting
from tideline.core.signing import fingerprint
from tideline.core.tokens import MOST_ADDRESSES, place_of
from tideline.engine.model.access.projects import DEFAULT, EVERY, shares, within
from tideline.engine.model.accounts import Client
from tideline_server.api.models import ClientLine, Invited
from tideline_server.api.openapi import body_of
from tideline_server.api.requests.access import Asking, Known
from tideline_server.api.services import PAGED, After, Given, Limit, Name, Named, link_next, page

router = APIRouter(tags=["clients"])


@dataclass(frozen=True)
class Invitation:
    """Which agent a token admits, and for how long."""

    name: str = setting("", doc="the only name that it admits; empty: the agent chooses")
    labels: Mapping[str, str] = setting(EMPTY, doc="what experiments may select the client by")
    ttl_seconds: float = setting(86400.0, low=1.0, high=366 * 86400.0, doc="seconds that the token can be used")
    hold: bool = setting(False, doc="whether the agent that it admits waits for approval")
    addresses: tuple[str, ...] = setting(
        (), doc="HOST:PORT of the gRPC ports, or https://HOST, where the coordinator does not know its own"
    )


@dataclass(frozen=True)
class Revocation:
    """Why a client is revoked."""

    reason: str = setting("", doc="sent to the client, and shown in the runs' results")


@dataclass(frozen=True)
class Approval:
    """Which session of a doubled client goes on."""

    session: str = setting("", doc="one of its `doubles`")


EXAMPLES = {
    "named": {"summary": "For one site", "value": {"name": "hospital-a", "labels": {"country": "nl"}, "ttl_seconds": 3600}}
}
REASON = {"left": {"summary": "With a reason", "value": {"reason": "the site has left the project"}}}
WITH_SESSION = body_of(Approval, {"doubled": {"summary": "Of a doubled one", "value": {"session": "13.5f0c1a9b"}}})
WITH_SESSION["requestBody"]["required"] = False
WITH_REASON = body_of(Revocation, REASON)
WITH_REASON["requestBody"]["required"] = False


@router.get("/clients", summary="List the enrolled agents", responses=PAGED)
def list_clients(
    request: Request, response: Response, services: Given, asking: Asking, limit: Limit = None, after: After = None
) -> list[ClientLine]:
    """Those of your project, sorted by name, each with the fingerprint of its keys."""
    ours = [client for client in services.journal.clients() if shares(asking.scope, client.projects)]
    shown, more = page(ours, lambda client: client.name, after, limit)
    if more:
        link_next(request, response, shown[-1].name)
    return [line(client, asking.scope, services.follows(client.name)) for client in shown]


@router.post("/invites", status_code=201, summary="Invite an agent", openapi_extra=body_of(Invitation, EXAMPLES))
def invite_client(services: Given, projects: Known, identity: Named, body: Annotated[dict[str, Any], Body()]) -> Invited:
    """Makes a one-use token for `tideline agent`; it is stored as a hash, so note it now. The agent serves the call's project."""
    asked = parse(Invitation, body)
    check_addresses(asked.addresses)
    projects.check_open(identity.scope or DEFAULT)
    secret = services.run_service.enrolment.invite(asked.name, asked.labels, asked.ttl_seconds, identity, asked.hold)
    token = services.meeting().token(secret, asked.addresses)
    return Invited(
        token=token.text,
        name=asked.name,
        labels=dict(asked.labels),
        expires=services.run_service.enrolment.invited(secret).expires,
        hold=asked.hold,
        addresses=list(token.addresses),
    )


@router.post("/clients/{name}/approve", summary="Approve a pending agent", openapi_extra=WITH_SESSION)
def approve_client(
    services: Given, identity: Named, name: Name, body: Annotated[dict[str, Any] | None, Body()] = None
) -> ClientLine:
    """The agent gets orders from now on. If it is approved already, nothing changes; 409 if it was revoked.

    Of a doubled one, `session` says which of `doubles` goes on; it is asked for new keys. 409 without it.
    """
    session = parse(Approval, body or {}).session
    return line(services.run_service.approve(name, identity.by, session, identity.scope), identity.scope)


@router.post("/clients/{name}/revoke", summary="Revoke an agent", openapi_extra=WITH_REASON)
def revoke_client(
    services: Given, identity: Named, name: Name, body: Annotated[dict[str, Any] | None, Body()] = None
) -> ClientLine:
    """Ends its open orders as failed, and refuses the agent. If you revoke it twice, the first date and reason stay."""
    return line(services.run_service.revoke(name, parse(Revocation, body or {}).reason, identity.by))


@router.post("/clients/{name}/rotate", summary="Ask an agent for new keys")
def rotate_client(services: Given, identity: Named, name: Name) -> ClientLine:
    """The agent makes them at its next heartbeat, and signs them with the old ones. 409 for one that was revoked."""
    return line(services.run_service.enrolment.ask_rotation(name, identity.by))


@dataclass(frozen=True)
class Serving:
    """Which projects a site serves."""

    projects: tuple[str, ...] = setting(doc="their names, all of them")


SERVES = {"two": {"summary": "A site of two projects", "value": {"projects": ["cardio", "retina"]}}}


@router.post("/clients/{name}/projects", summary="Say which projects a site serves", openapi_extra=body_of(Serving, SERVES))
def assign_client(
    services: Given, projects: Known, identity: Named, name: Name, body: Annotated[dict[str, Any], Body()]
) -> ClientLine:
    """Runs of others ask it for nothing from now on; those that it has joined go on. 409 where a quota of sites is reached."""
    services.run_service.enrolment.find(name)
    return line(projects.assign(name, parse(Serving, body).projects, identity.by))


def check_addresses(addresses: tuple[str, ...]) -> None:
    """Raises ConfigRefused with the place of what cannot stand in a token."""
    for at, each in enumerate(addresses):
        try:
            place_of(each)
        except ConfigRefused as error:
            raise ConfigRefused(error.what, error.todo, path=f"addresses[{at}]") from None
    if len(",".join(addresses)) > MOST_ADDRESSES:
        raise ConfigRefused("The addresses are too long for a token", "Name fewer", path="addresses")


def line(client: Client, scope: str = EVERY, follows: bool | None = None) -> ClientLine:
    """A site as it is listed; which other projects it serves is not told to who does not see them."""
    said = fingerprint(bytes.fromhex(client.keys.sign), bytes.fromhex(client.keys.receive))
    lists = {"roles": list(client.roles), "labels": dict(client.labels), "doubles": list(client.doubles)}
    lists |= {"projects": [each for each in client.projects if within(scope, each)]}
    return ClientLine(**vars(client) | lists | {"standing": client.standing.value, "fingerprint": said, "follows": follows})
