"""Calls to a provider: bounded in bytes and seconds, over TLS, to no address that a redirect names."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
from authlib.oauth2.auth import ClientAuth

from tideline.core.errors import ConfigRefused, Unreachable

LOOPBACK = ("127.0.0.1", "::1", "localhost")
MOST_BYTES = 256 << 10  # of an answer: descriptions and keys have some kilobytes
SECONDS = 10.0  # for a whole call, however slowly it comes
TIMEOUT = httpx.Timeout(5.0)
# Nothing that has to be unpacked: a few bytes could become many.
HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}
AWAY = "Check that the provider runs and that this machine reaches it; then try again"


@dataclass(frozen=True)
class Reply:
    """A provider's answer, as authlib reads it: a status, and an object of JSON."""

    status_code: int
    content: Mapping[str, Any]

    def json(self) -> Mapping[str, Any]:
        return self.content

    def raise_for_status(self) -> None:
        """Raises Unreachable for what is no success."""
        if self.status_code >= 400:
            raise Unreachable(f"The provider of identities answers {self.status_code}", AWAY)


class Fetcher:
    """Calls one provider, from threads without a loop. Every method raises Unreachable.

    ca: certificates (PEM) that are trusted beside those of the machine. insecure: also without TLS, to any host.
    seconds: for a whole call.
    """

    def __init__(self, ca: Path | None = None, insecure: bool = False, seconds: float = SECONDS) -> None:
        self.insecure, self._trusted, self._seconds = insecure, trusted(ca), seconds

    def get(self, url: str) -> Mapping[str, Any]:
        """The object at an address. Raises Unreachable for any other answer."""
        reply = self._call("GET", url)
        if reply.status_code != httpx.codes.OK:
            raise strange(url, f"it answers {reply.status_code}")
        return reply.content

    def post(
        self,
        url: str,
        data: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        auth: ClientAuth | None = None,
    ) -> Reply:
        """The answer to a form; authlib's client calls it so, and says with `auth` who asks."""
        sent, body = dict(headers or {}) | {"Content-Type": "application/x-www-form-urlencoded"}, urlencode(data)
        if auth is not None:
            url, sent, body = auth.prepare("POST", url, sent, body)
        return self._call("POST", url, sent, body)

    def _call(self, method: str, url: str, headers: Mapping[str, str] = HEADERS, body: str | None = None) -> Reply:
        check_address(url, self.insecure)
        request = httpx.Request(method, url, headers=dict(headers) | HEADERS, content=body)
        try:
            status, text = asyncio.run(self._answer(request))
        except TimeoutError:
            raise strange(url, f"its answer takes more than {self._seconds:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as cause:
            raise strange(url, str(cause) or type(cause).__name__) from None
        return Reply(status, object_in(text, url, status))

    async def _answer(self, request: httpx.Request) -> tuple[int, bytes]:
        """The answer's status and bytes. A loop of its own, as nothing else ends a call that comes a byte at a time."""
        outside = request.url.host not in LOOPBACK  # a proxy is for other machines, not for this one
        options = {"verify": self._trusted, "timeout": TIMEOUT, "follow_redirects": False, "trust_env": outside}
        async with asyncio.timeout(self._seconds), httpx.AsyncClient(**options) as client:  # type: ignore[arg-type]
            response = await client.send(request, stream=True)
            try:
                return response.status_code, await bounded(response)
            finally:
                await response.aclose()


async def bounded(response: httpx.Response) -> bytes:
    """An answer's bytes. Raises Unreachable for one that goes elsewhere, is packed or has too many bytes."""
    url = str(response.url)
    if response.is_redirect:
        raise strange(url, f"it sends to {response.headers.get('location', 'nowhere')[:200]}, where nobody follows")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise strange(url, "its answer is packed")
    text = bytearray()
    async for chunk in response.aiter_raw():
        text += chunk
        if len(text) > MOST_BYTES:
            raise strange(url, f"its answer has more than {MOST_BYTES} bytes")
    return bytes(text)


def object_in(text: bytes, url: str, status: int) -> Mapping[str, Any]:
    """An object of JSON; of a success that has no body, an empty one. Raises Unreachable."""
    if not text.strip() and status < 300:
        return {}
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict):
            return found
    raise strange(url, f"it answers {status} with something else than an object of JSON")


def strange(url: str, why: str) -> Unreachable:
    parts = urlsplit(url)
    what = f"The provider of identities at {parts.scheme}://{parts.netloc}{parts.path} gives no usable answer: {why}"
    return Unreachable(what[:600], AWAY)


def check_address(url: str, insecure: bool) -> None:
    """Raises Unreachable for an address, such as a provider's description names, that is not called."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and (insecure or host in LOOPBACK))):
        raise Unreachable(f"The provider of identities names {url[:200]!r}, which is not called", "It has to begin with https://")


def check_issuer(issuer: str, insecure: bool, place: str) -> str:
    """An issuer as it is compared, byte for byte. Raises ConfigRefused."""
    try:
        parts = urlsplit(issuer)
        good = bool(parts.hostname) and parts.port != 0 and not (parts.query or parts.fragment or parts.username)
    except ValueError:
        good = False
    if not good or parts.scheme not in ("http", "https") or not issuer.isascii() or not issuer.isprintable() or " " in issuer:
        raise ConfigRefused(f"{place} is {issuer[:200]!r}", "Write it as the provider does: https://HOST/PATH", path=place)
    if parts.scheme == "http" and parts.hostname not in LOOPBACK and not insecure:
        what = f"{place} {issuer} is without TLS: whoever is on the way could sign in as anybody"
        raise ConfigRefused(what, "Give an address with https, or say --oidc-insecure on a network that you trust", path=place)
    return issuer


def trusted(ca: Path | None) -> ssl.SSLContext:
    """What this machine trusts, and these certificates. Raises ConfigRefused."""
    context = ssl.create_default_context()
    try:
        if ca is not None:
            context.load_verify_locations(cafile=str(ca.expanduser()))
    except (OSError, ssl.SSLError) as cause:
        raise ConfigRefused(f"The certificates in {ca} cannot be used: {cause}", "Name a file of PEM", path=str(ca)) from None
    return context
