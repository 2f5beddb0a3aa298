"""What the routes share: the services they call, names and pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Depends, Path, Query, Request
from starlette.responses import Response

from tideline.core.run import ClientId
from tideline.core.tokens import Token, Trust
from tideline.engine.coordinator.api_keys import ANYBODY, Caller
from tideline.engine.coordinator.idempotency import Identity
from tideline.engine.coordinator.notices.targets import Targets
from tideline.engine.coordinator.part_store import PartStore
from tideline.engine.coordinator.retention.archiving import Archiving
from tideline.engine.coordinator.retention.keeping import Retention
from tideline.engine.coordinator.run_service import RunService
from tideline.engine.ports.clock import Clock
from tideline.engine.ports.compute import Compute
from tideline.engine.ports.journal import Journal
from tideline_server.api.requests.wrapping import Seen
from tideline_server.dossiers.making import Dossiers
from tideline_server.limits import UNLIMITED, Limits
from tideline_server.oidc.browser import BrowserSignIn


@dataclass(frozen=True)
class Meeting:
    """What a token says beside its secret: where agents call, and how they know that it is this coordinator.

    advertised  addresses that the operator gave; they stand before those of a request
    own         the address of this coordinator's own gRPC port, if it has one name
    authority   SHA-256 of the certificate (DER) that agents are to trust
    """

    advertised: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    trust: Trust = Trust.PLAIN
    authority: bytes = b""

    def token(self, secret: str, asked: tuple[str, ...]) -> Token:
        return Token(secret, self.advertised or asked or self.own, self.trust, self.authority)


def planned_here(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A plan of links, made on the thread that asks."""
    from tideline.planning.links import plan_links

    return plan_links(asked)


@dataclass(frozen=True)
class Services:
    """The engine as the API sees it. All but `moved` may block and is called on worker threads, several at a time.

    moved         waits until a topic such as "run:ID" rings (True) or the seconds have passed (False); may miss a ring
    api_key_hash  SHA-256 of this coordinator's own admin key, in hex; None asks for no key
    shared_key_hash  the same of an admin key that replicas share, if there is one
    admins        both, where their files may change while the coordinator serves
    ending        whether the coordinator is closing, so that streams end by themselves
    limits        how often a caller is let in
    meeting       what tokens say of where this coordinator is
    ready         why it cannot take work; nothing where it can
    warnings      what does not keep it from work yet
    metrics       its numbers as Prometheus reads them, and the kind of text that they are
    seen          is told of each request that was answered
    plan          makes a plan of links; the shell hands in one that does so in a process of its own
    retention     applies the rules of age, if there are some; archiving: that for the audit log
    targets       who is notified, where this coordinator notifies
    follows       whether an agent has taken up what is announced to agents, as far as this coordinator knows
    browser       signs users in with a provider of identities, if there is one
    dossiers      makes and signs dossiers of runs, where this coordinator has a key
    health        facts about this coordinator, shown to everybody; raises Unreachable when a store does not answer
    """

    run_service: RunService
    journal: Journal
    part_store: PartStore
    compute: Compute
    clock: Clock
    moved: Callable[[str, float], Awaitable[bool]]
    version: str
    api_key_hash: str | None
    health: Callable[[], Mapping[str, Any]]
    ending: Callable[[], bool] = lambda: False
    limits: Limits = UNLIMITED
    meeting: Callable[[], Meeting] = Meeting
    shared_key_hash: str | None = None
    admins: Collection[str] | None = None
    ready: Callable[[], Sequence[str]] = lambda: ()
    warnings: Callable[[], Sequence[str]] = lambda: ()
    metrics: Callable[[], tuple[bytes, str]] = lambda: (b"", "text/plain")
    seen: Seen = lambda *request: None
    plan: Callable[[Mapping[str, Any]], dict[str, Any]] = planned_here
    retention: Retention | None = None
    archiving: Archiving | None = None
    targets: Targets | None = None
    follows: Callable[[ClientId], bool | None] = lambda client: None
    browser: BrowserSignIn | None = None
    dossiers: Dossiers | None = None


@dataclass(frozen=True)
class ApiSettings:
    """What an operator may turn."""

    max_body_bytes: int = 1 << 20
    body_seconds: float = 30.0  # in which the whole of a body has to come
    keep_alive_seconds: float = 15.0
    recheck_seconds: float = 5.0  # after which it is looked at again whether who follows a stream may do so
    poll_seconds: float = 1.0  # between two looks at what has changed, while somebody listens
    patience_seconds: float = 5.0  # for which a call waits for another with the same Idempotency-Key
    max_weights_bytes: int = 4 * 10**9  # of a file of weights that a person uploads
    dashboard: bool = True  # whether pages for people are served
    public_url: str = ""  # where users find the HTTP port


DEFAULTS = ApiSettings()


async def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def identity_of(request: Request) -> Identity:
    """What the things are called that a request makes: of each try of it the same, if it has an Idempotency-Key (see once)."""
    found: Identity | None = getattr(request.state, "identity", None)
    caller: Caller = getattr(request.state, "caller", ANYBODY)
    return found or Identity(by=caller.name, scope=caller.scope)


# What an operation adds to OpenAPI, by status.
Responses = dict[int | str, dict[str, Any]]
Given = Annotated[Services, Depends(services_of)]
# Every operation that changes something takes it, and names by it what it makes.
Named = Annotated[Identity, Depends(identity_of)]
# No name holds anything else, so stores never see odd characters from a URL.
NAME = r"^[A-Za-z0-9._-]{1,80}$"
Name = Annotated[str, Path(pattern=NAME, description="as it stands in the list")]


LONGEST = 1000  # rows on a page
T = TypeVar("T")
Limit = Annotated[int | None, Query(ge=1, le=LONGEST, description="the most rows to list; all without it")]
After = Annotated[str | None, Query(pattern=NAME, description="list the rows that follow this one: the last of the page before")]
LINK = {"Link": {"description": 'where more follows: `<address>; rel="next"`', "schema": {"type": "string"}}}
PAGED: Responses = {200: {"headers": LINK}}


def page(rows: Sequence[T], name_of: Callable[[T], str], after: str | None, limit: int | None) -> tuple[Sequence[T], bool]:
    """The rows of a list in the order of their names that follow `after`, at most so many, and whether more follow."""
    left = [row for row in rows if after is None or name_of(row) > after]
    return left[:limit], limit is not None and len(left) > limit


def link_next(request: Request, response: Response, after: str | int) -> None:
    """Say where the next page is: the same address, after this row."""
    asked = [(k, v) for k, v in request.query_params.multi_items() if k != "after"]
    address = f"{quote(request.url.path)}?{urlencode([*asked, ('after', str(after))])}"
    response.headers["Link"] = f'<{address}>; rel="next"'
