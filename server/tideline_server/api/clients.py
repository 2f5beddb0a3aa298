"""Agents: who is enrolled, and tokens for those to come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body

from tideline.core.run import EMPTY
from tideline.core.settings import parse, setting
from tideline_server.api.models import ClientLine, Invited
from tideline_server.api.schema import body_of
from tideline_server.api.services import Given, Named

router = APIRouter(tags=["clients"])


@dataclass(frozen=True)
class Invitation:
    """Whom a token admits, and for how long."""

    name: str = setting("", doc="the only name that it admits; empty: the agent chooses")
    labels: Mapping[str, str] = setting(EMPTY, doc="what experiments may select the client by")
    ttl_seconds: float = setting(86400.0, low=1.0, high=366 * 86400.0, doc="seconds that the token can be used")


EXAMPLES = {
    "named": {"summary": "For one site", "value": {"name": "hospital-a", "labels": {"country": "nl"}, "ttl_seconds": 3600}}
}


@router.get("/clients", summary="List the enrolled agents", response_model=list[ClientLine])
def list_clients(services: Given) -> Any:
    """Sorted by name. Credentials are kept as hashes and shown to nobody."""
    return [asdict(client) | {"labels": dict(client.labels)} for client in services.journal.clients()]


@router.post("/invites", status_code=201, summary="Invite an agent", openapi_extra=body_of(Invitation, EXAMPLES))
def invite_client(services: Given, identity: Named, body: Annotated[dict[str, Any], Body()]) -> Invited:
    """Makes a one-use token for `tideline-agent`; it is stored as a hash, so note it now."""
    asked = parse(Invitation, body)
    token = services.office.invite(asked.name, asked.labels, asked.ttl_seconds, identity)
    return Invited(token=token, name=asked.name, labels=dict(asked.labels), expires=services.office.invited(token).expires)
