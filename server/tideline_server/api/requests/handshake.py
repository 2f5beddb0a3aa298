"""Both ends say which API they speak. A call that says nothing, as from curl or a browser, is served as current."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tideline.core.errors import VersionRefused
from tideline_server.api.answers import answer
from tideline_server.api.requests.roles import OPEN_PATHS

API, VERSION = "Tideline-Api", "Tideline-Version"
SPOKEN = 2
# API 1 told errors in another shape. Who says that he speaks it could not read ours, so he is told at once.
OLDEST = 2


class Handshake:
    """Refuses calls of an API that is not spoken here, and writes on every answer what is."""

    def __init__(self, app: ASGIApp, version: str) -> None:
        self.app, self.version = app, version

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def signed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[VERSION], headers[API] = self.version, str(SPOKEN)
            await send(message)

        try:
            if scope["path"] not in OPEN_PATHS:  # so that everybody can find out what is spoken here
                self.agree(Headers(scope=scope))
        except VersionRefused as error:
            await answer(400, error)(scope, receive, signed)
        else:
            await self.app(scope, receive, signed)

    def agree(self, headers: Headers) -> None:
        """Raises VersionRefused for a call of another API."""
        said = headers.get(API)
        if said is None or (said.isdecimal() and len(said) < 9 and OLDEST <= int(said) <= SPOKEN):
            return
        newer = not said.isdecimal() or len(said) > 8 or int(said) > SPOKEN
        raise VersionRefused(
            f"This call speaks API {said[:20]} (tideline {headers.get(VERSION, 'of unknown version')[:40]}); "
            f"this coordinator is tideline {self.version} and speaks API {SPOKEN}",
            "Upgrade the coordinator" if newer else "Upgrade the tideline that calls",
            speaks=SPOKEN,
            oldest=OLDEST,
            version=self.version,
        )
