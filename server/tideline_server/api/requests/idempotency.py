"""A call that changes something is done once, however often it is sent with the same Idempotency-Key (coordinator.idempotency).

The answer is stored before it is sent. A repeat gets it again; one that comes while the first is under way waits for it a while.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tideline.core.errors import ConfigRefused, FederationError, KeyReused, Underway
from tideline.engine.coordinator.api_keys import Caller
from tideline.engine.coordinator.idempotency import Identity
from tideline.engine.model.access.once import Answer, IdempotencyRecord
from tideline.engine.model.access.projects import DEFAULT, EVERY
from tideline_server.api.answers import federation_error
from tideline_server.api.requests.access import BEGINNING, STREAMED, UNCHANGING, caller_in, keyless
from tideline_server.api.requests.bodies import again
from tideline_server.api.services import Services

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})  # methods that change nothing: a key means nothing there
HEADER, REPLAYED = "Idempotency-Key", (b"idempotent-replayed", b"true")
VISIBLE = "^[!-~]{1,255}$"
TOPIC = "idempotency"
POLL_SECONDS = 0.25  # how often a waiting call looks by itself
AGAIN_SECONDS = 2  # after which a call that waited in vain is best sent again
# They stand in a kept answer where its token or its API key stood; JSON holds no such characters.
SECRET, SECRET_KEY = "\x1a", "\x1b"

DECLARED = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": VISIBLE},
    "description": "a name for this call, such as a UUID; sent again with it, a call is not done again and gets the same answer",
}
UNKEPT = ("400", "401", "408", "413", "415", "429")  # what is refused before a call is looked at
MARKED = {"description": "true, where this answer was given before", "schema": {"type": "string", "enum": ["true"]}}


class Once:
    """Sends every call that has a key and may change something through its idempotency record, whatever its address."""

    def __init__(self, app: ASGIApp, services: Services, patience: float) -> None:
        self.app, self.services, self.patience = app, services, patience
        self._working: set[str] = set()  # idempotency records that are done here just now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        keys = Headers(scope=scope).getlist(HEADER) if scope["type"] == "http" and scope["method"] not in SAFE else []
        if not keys or keyless(scope["method"], scope["path"]):  # such as a file, whose address says what it is
            await self.app(scope, receive, send)
            return
        try:
            key = read_key(keys)
            body = (await receive()).get("body", b"")
            response = await self.respond(Call(key, body, caller_in(scope)), scope, receive)
        except FederationError as error:
            await (await federation_error(Request(scope), error))(scope, receive, send)
        else:
            await response.send(send)

    async def respond(self, call: Call, scope: Scope, receive: Receive) -> Response:
        record = await self.turn(call.record(scope, self.services.clock.now()))
        identity = call.identity(record)
        if record.answer is not None:
            return Response.of(record.answer, identity, repeated=True)
        self._working.add(record.key)
        try:
            return await self.work(record, identity, scope, again(call.body, receive))
        finally:
            self._working.discard(record.key)

    async def turn(self, mine: IdempotencyRecord) -> IdempotencyRecord:
        """The idempotency record with its answer or, if it has none, ours to do. Raises KeyReused, Underway, Unreachable.

        A worker who is not of this process and not heard of for as long as we wait counts as dead. If it is not, both do the
        same under the same names, and the first answer counts.
        """
        first, over, until = "", "", anyio.current_time() + self.patience
        while True:
            known = await run_in_threadpool(self.services.journal.reserve, mine, over)
            if known.asked != mine.asked:
                what = f"This {HEADER} was sent with another body, address or API key before"
                todo = "Send a new key with a new call, and the same key only with the very same call"
                raise KeyReused(what, todo, path=HEADER)
            if known.answer is not None or known.worker == mine.worker:
                return known
            first = first or known.worker
            if anyio.current_time() < until:
                await self.services.moved(TOPIC, min(POLL_SECONDS, self.patience))
            elif over or known.worker != first or mine.key in self._working:
                what = f"The first call with this {HEADER} is still under way"
                todo = f"Send the same call again in {AGAIN_SECONDS} s; it is not done twice"
                raise Underway(what, todo, retry_after=AGAIN_SECONDS)
            else:
                over = first

    async def work(self, record: IdempotencyRecord, identity: Identity, scope: Scope, receive: Receive) -> Response:
        """Do it, and keep the answer. What failed is left to whoever sends it again."""
        scope.setdefault("state", {})["identity"] = identity
        response, stored = Response(), None
        try:
            await self.app(scope, receive, response.take)
            if response.status < 500:
                stored = await self.store(record, identity, response)
            return stored or response
        finally:
            if stored is None:
                await self.leave(record)
            self.services.run_service.bell.ring(TOPIC)

    async def store(self, record: IdempotencyRecord, identity: Identity, response: Response) -> Response:
        """Keep the answer; the answer that counts."""
        ours = response.answer(identity)
        stored = await run_in_threadpool(self.services.journal.conclude, record.key, record.worker, ours)
        return Response.of(stored, identity, repeated=stored != ours)

    async def leave(self, record: IdempotencyRecord) -> None:
        """Say that nobody is at it. Where the store does not answer, that is found out by waiting."""
        with suppress(FederationError):
            await run_in_threadpool(self.services.journal.leave, record.key, record.worker)


@dataclass(frozen=True)
class Call:
    """A call with a key. `caller`: whose answer it is; without a secret of the API key no token can be made again."""

    key: str
    body: bytes
    caller: Caller

    def record(self, scope: Scope, now: float) -> IdempotencyRecord:
        """What the journal is told of it: neither the key nor the body."""
        asked = [scope["method"], scope["path"], scope["query_string"].decode("latin-1"), canonical(self.body)]
        meant = hmac.digest(self.caller.secret.encode(), json.dumps(asked).encode(), "sha256").hex()
        return IdempotencyRecord(
            key=hashlib.sha256(self.named.encode()).hexdigest(),
            asked=meant,
            seed=secrets.token_hex(16),
            made=now,
            worker=secrets.token_hex(8),
        )

    @property
    def named(self) -> str:
        """The key among those of its project: that another project has used the same is not told."""
        return self.key if self.caller.scope in (EVERY, DEFAULT) else f"{self.caller.scope}\n{self.key}"

    def identity(self, record: IdempotencyRecord) -> Identity:
        """What is made by it is called after the record's seed; a token also needs both keys."""
        secret = f"{self.caller.secret}\n{self.key}".encode()
        return Identity(
            seed=record.seed,
            secret=secret,
            idempotency_record=record.key,
            worker=record.worker,
            by=self.caller.name,
            scope=self.caller.scope,
        )


@dataclass
class Response:
    """An answer as it goes out."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""

    @classmethod
    def of(cls, answer: Answer, identity: Identity, repeated: bool) -> Response:
        """A kept answer, marked if it is told again."""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        headers += [REPLAYED] if repeated else []
        body = answer.body.replace(SECRET, identity.token).replace(SECRET_KEY, identity.api_key)
        return cls(answer.status, headers, body.encode())

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self.body += message.get("body", b"")

    def answer(self, identity: Identity) -> Answer:
        """What is kept of it: all but the secrets."""
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in self.headers)
        body = self.body.decode().replace(identity.token, SECRET).replace(identity.api_key, SECRET_KEY)
        return Answer(self.status, headers, body)

    async def send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


def read_key(keys: Sequence[str]) -> str:
    """The key of a call. Raises ConfigRefused."""
    if len(keys) > 1 or not re.fullmatch(VISIBLE, keys[0]):
        what = f"{HEADER} is sent {len(keys)} times" if len(keys) > 1 else f"{HEADER} is not 1 to 255 visible ASCII characters"
        raise ConfigRefused(what, "Send one key for each call, such as a UUID", path=HEADER)
    return keys[0]


def declare_key(name: str, operation: dict[str, Any]) -> None:
    """Say in an operation's description that it takes a key, if it may change something. `name`: its method and address."""
    if name.partition(" ")[0] not in SAFE and name not in STREAMED | UNCHANGING | BEGINNING:
        operation.setdefault("parameters", []).append(DECLARED)
        for status, response in operation["responses"].items():
            if status < "500" and status not in UNKEPT:
                response.setdefault("headers", {})["Idempotent-Replayed"] = MARKED


def canonical(body: bytes) -> str:
    """A body's meaning: the order of names and the space between them do not count. Intake has seen that it is JSON."""
    return json.dumps(json.loads(body), sort_keys=True) if body else ""
