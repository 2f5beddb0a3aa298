"""What the shell hands to the HTTP door, and how a router gets at it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Path, Request

from tideline.archive.parts import Parts
from tideline.engine.office import Office
from tideline.engine.ports import Clock, Journal, Mill


@dataclass(frozen=True)
class Services:
    """The kernel as the door sees it. All but `moved` may block and is called on worker threads, several at a time.

    moved         waits until a topic such as "run:ID" rings (True) or the seconds have passed (False); may miss a ring
    api_key_hash  SHA-256 of the key, in hex; None asks for no key
    ending        whether the coordinator is closing, so that streams end by themselves
    health        facts about this coordinator, shown to everybody; raises Unreachable when a store does not answer
    """

    office: Office
    journal: Journal
    parts: Parts
    mill: Mill
    clock: Clock
    moved: Callable[[str, float], Awaitable[bool]]
    version: str
    api_key_hash: str | None
    health: Callable[[], Mapping[str, Any]]
    ending: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class ApiSettings:
    """What an operator may turn."""

    max_body_bytes: int = 1 << 20
    keep_alive_seconds: float = 15.0


DEFAULTS = ApiSettings()


async def services_of(request: Request) -> Services:
    """The services of the app that a request came to."""
    found = request.app.state.services
    assert isinstance(found, Services)
    return found


# What an operation adds to OpenAPI, by status.
Responses = dict[int | str, dict[str, Any]]
Given = Annotated[Services, Depends(services_of)]
# No name holds anything else, so stores never see odd characters from a URL.
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,80}$", description="as it stands in the list")]
