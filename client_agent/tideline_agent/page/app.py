"""The page's HTTP: files that hold no secret, and what is asked and changed by whoever came by the link."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tideline.core.errors import ConfigRefused, FederationError, IdentityRefused, Malformed, NotFound, StorageFull, TooMany
from tideline.core.settings import Plain, plain
from tideline.pages.files import table, takes_gzip
from tideline_agent.home import words
from tideline_agent.home.ledger import FileLedger
from tideline_agent.page import content
from tideline_agent.page.access import SESSION_SECONDS, Access, Foreign
from tideline_agent.page.egress import Egress, Search
from tideline_agent.page.exporting import export_model
from tideline_agent.page.sent import as_csv, as_lines

MOST_BODY = 16384
STATUS = {IdentityRefused: 401, Foreign: 403, NotFound: 404, Malformed: 400, ConfigRefused: 400, TooMany: 429, StorageFull: 507}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
Handler = Callable[[Request], Awaitable[Response]]


@dataclass
class OwnersPage:
    """site: what is shown. access: who may see it. cookie: its name, of this port alone: cookies of a host go to all ports."""

    site: content.Site
    access: Access
    cookie: str
    egress: Egress = field(init=False)
    ledger: FileLedger = field(init=False)

    def __post_init__(self) -> None:
        self.egress, self.ledger = Egress(self.site.home), FileLedger(self.site.home)

    def app(self) -> Starlette:
        reads: Mapping[str, Callable[[Request], Response]] = {
            "session": self.session,
            "now": self.now,
            "machine": lambda request: answer(plain(self.site.machine.use())),
            "egress": self.sent,
            "egress.csv": self.sent_csv,
            "egress.jsonl": self.sent_lines,
            "verify": lambda request: answer(plain(self.egress.verify())),
            "results": lambda request: answer(content.results_of(self.site.home)),
            "budget": lambda request: answer(content.budget_of(self.site.home, self.ledger)),
            "policy": lambda request: answer(content.policy_of(self.site)),
            "model": self.model,
        }
        changes = {"say": self.say, "end": self.end, "pause": self.pause}
        return Starlette(
            routes=[
                *(Route(f"/api/{name}", self.guarded(self.reading(act))) for name, act in reads.items()),
                *(Route(f"/api/{name}", self.guarded(self.changing(act)), methods=["POST"]) for name, act in changes.items()),
                Route("/api/enter", self.guarded(self.enter), methods=["POST"]),
                Route("/api/leave", self.guarded(self.leave), methods=["POST"]),
                Route("/", self.guarded(self.file)),
                Route("/pages/{path:path}", self.guarded(self.file)),
                Route("/{other:path}", self.guarded(self.nothing)),
            ]
        )

    def guarded(self, act: Handler) -> Handler:
        """With the checks of every request, and what goes wrong as words."""

        async def handle(request: Request) -> Response:
            try:
                self.access.check_place(request.headers)
                made = await act(request)
            except FederationError as error:
                status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 409)
                made = JSONResponse({"detail": error.what, "todo": error.todo, "kind": error.kind}, status)
            for name, value in HEADERS.items():
                made.headers[name] = value
            return made

        return handle

    def reading(self, act: Callable[[Request], Response]) -> Handler:
        async def handle(request: Request) -> Response:
            self.access.session(request.cookies.get(self.cookie, ""))
            return await run_in_threadpool(act, request)

        return handle

    def changing(self, act: Callable[[Mapping[str, Plain]], None]) -> Handler:
        async def handle(request: Request) -> Response:
            self.access.check_change(request.headers, request.cookies.get(self.cookie, ""))
            await run_in_threadpool(act, await body_of(request))
            return answer({"done": True})

        return handle

    async def file(self, request: Request) -> Response:
        found = table(__package__).get(request.path_params.get("path", "index.html"))
        if found is None:
            raise NotFound("There is no such page", "Open the link as it was printed")
        if found.packed and takes_gzip(request.headers.getlist("accept-encoding")):
            return Response(found.packed, headers={"Content-Encoding": "gzip"}, media_type=found.media)
        return Response(found.body, media_type=found.media)

    async def nothing(self, request: Request) -> Response:
        raise NotFound("There is no such page", "Open the link as it was printed")

    async def enter(self, request: Request) -> Response:
        self.access.check_ours(request.headers)
        link = str((await body_of(request)).get("link", ""))
        secret, session = await run_in_threadpool(self.access.enter, link)
        made = answer({"csrf": session.csrf})
        secure = request.headers.get("origin", "").startswith("https:")
        made.set_cookie(self.cookie, secret, int(SESSION_SECONDS), httponly=True, samesite="strict", secure=secure)
        return made

    async def leave(self, request: Request) -> Response:
        cookie = request.cookies.get(self.cookie, "")
        self.access.check_change(request.headers, cookie)
        self.access.leave(cookie)
        made = answer({"done": True})
        made.delete_cookie(self.cookie, httponly=True, samesite="strict")
        return made

    def session(self, request: Request) -> Response:
        return answer({"csrf": self.access.session(request.cookies.get(self.cookie, "")).csrf})

    def now(self, request: Request) -> Response:
        """Nothing but a digest where it is what the page shows already."""
        shown = content.now_of(self.site, self.ledger, self.egress)
        digest = hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:16]
        return Response(status_code=204) if request.query_params.get("known") == digest else answer({**shown, "digest": digest})

    def sent(self, request: Request) -> Response:
        return answer(content.egress_of(self.egress, search_of(request), int(number(request, "skip"))))

    def sent_csv(self, request: Request) -> Response:
        rows = self.egress.found(search_of(request))
        return StreamingResponse(as_csv(rows.read()), media_type="text/csv", headers=saved_as("egress.csv"))

    def sent_lines(self, request: Request) -> Response:
        rows = self.egress.found(search_of(request))
        return StreamingResponse(as_lines(rows.read()), media_type="application/jsonl", headers=saved_as("egress.jsonl"))

    def model(self, request: Request) -> Response:
        """The site's own model. It is written to a file beside the home's others, and read from there: the open file stays."""
        run = request.query_params.get("run", "")
        with tempfile.TemporaryDirectory(prefix="tideline-") as folder:
            path = Path(folder) / "model.safetensors"
            export_model(self.site.home, run, path)
            body = path.read_bytes()
        return Response(body, media_type="application/octet-stream", headers=saved_as("model.safetensors"))

    def say(self, given: Mapping[str, Plain]) -> None:
        said, shown = given.get("answer"), given.get("shown")
        if not isinstance(said, str) or said not in ANSWERS:
            raise Malformed("The answer is not one that there is", "Load the page again")
        read = list(map(str, shown)) if isinstance(shown, list) else []
        home, run = self.site.home, str(given.get("run", ""))
        ANSWERS[said](home, words.question(home, run, read if said in ("once", "always") else None))

    def end(self, given: Mapping[str, Plain]) -> None:
        decision = given.get("number")
        words.end_decision(self.site.home, decision if isinstance(decision, int) else 0)

    def pause(self, given: Mapping[str, Plain]) -> None:
        words.pause(self.site.home, given.get("on") is True)


def never(home: Path, asked: words.Question) -> None:
    words.decline(home, asked)
    words.never(home, asked.brief.method)


ANSWERS: Mapping[str, Callable[[Path, words.Question], None]] = {
    "once": words.approve_once,
    "always": words.approve_always,
    "decline": words.decline,
    "never": never,
}


def answer(value: object) -> Response:
    return JSONResponse(value)


def saved_as(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


def search_of(request: Request) -> Search:
    """Raises Malformed for a number that is none."""
    asked = request.query_params
    return Search(asked.get("text", "")[:200], asked.get("run", "")[:300], number(request, "since"), number(request, "until"))


def number(request: Request, name: str) -> float:
    try:
        found = float(request.query_params.get(name) or 0)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e12:
        raise Malformed(f"{name} is no number that can be", "Load the page again")
    return found


async def body_of(request: Request) -> Mapping[str, Plain]:
    """Raises Malformed for what is no JSON object, or is long."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > MOST_BODY:
            raise Malformed("The request is too long", "Load the page again")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Malformed("The request is no JSON object", "Load the page again")
    return found
