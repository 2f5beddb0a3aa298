"""Keys of this door: who has one, new ones, and their end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response

from tideline.core.errors import NotFound
from tideline.core.settings import parse, setting
from tideline.engine.coordinator.api_keys import LONGEST_SECONDS
from tideline.engine.model.accounts import ApiKey, KeyRole
from tideline_server.api.models import KeyLine, KeyMade, Whoami
from tideline_server.api.pages import PAGED, After, Limit, link_next
from tideline_server.api.requests.access import Asking, Keys
from tideline_server.api.schema import body_of
from tideline_server.api.services import Name, Named

router = APIRouter(tags=["keys"])


@dataclass(frozen=True)
class KeyAsked:
    """Who gets a key, what its holder may do, and for how long."""

    name: str = setting(doc="what the holder is called, in lists and in events of runs")
    role: KeyRole = setting(doc="what the holder may do")
    ttl_seconds: float | None = setting(None, low=1.0, high=LONGEST_SECONDS, doc="seconds that it is good for; null: any time")


EXAMPLES = {"operator": {"summary": "For a person", "value": {"name": "alice", "role": "operator", "ttl_seconds": 7776000}}}


@router.get("/whoami", summary="Show whose key this is")
def whoami(asking: Asking) -> Whoami:
    """The name and the role of the key that the call was made with. An empty name: this door asks for no key."""
    return Whoami(name=asking.name, role=asking.role.value)


@router.get("/keys", summary="List the keys", responses=PAGED)
def list_keys(request: Request, response: Response, keys: Keys, limit: Limit = None, after: After = None) -> list[KeyLine]:
    """Every key that was ever made here, oldest first, and nothing that could be used as one. A page's mark is an `id`."""
    rows = list(keys.every())
    ids = [row.id for row in rows]
    if after is not None and after not in ids:
        raise NotFound(f"There is no key whose id is {after!r}", "See the list of keys")
    begin = 0 if after is None else ids.index(after) + 1
    shown = rows[begin:] if limit is None else rows[begin : begin + limit]
    if begin + len(shown) < len(rows):
        link_next(request, response, shown[-1].id)
    return [line(row) for row in shown]


@router.post("/keys", status_code=201, summary="Make a key", openapi_extra=body_of(KeyAsked, EXAMPLES))
def add_key(keys: Keys, asking: Asking, identity: Named, body: Annotated[dict[str, Any], Body()]) -> KeyMade:
    """The key is shown here and never again; of it there is a hash. Replicas know it within a second."""
    asked = parse(KeyAsked, body)
    key, made = keys.add(asked.name, asked.role, asked.ttl_seconds, asking.name, identity)
    return KeyMade(key=key, id=made.id, name=made.name, role=made.role.value, expires=made.expires)


@router.delete("/keys/{name}", summary="Revoke a key")
def revoke_key(keys: Keys, identity: Named, name: Name) -> KeyLine:
    """The key opens nothing here from now on, and within five seconds nothing at other replicas. Its name is free again."""
    return line(keys.revoke(name, identity.by))


def line(row: ApiKey) -> KeyLine:
    """A key as it is listed: without its hash."""
    told = asdict(row) | {"role": row.role.value}
    del told["key_hash"]
    return KeyLine(**told)
