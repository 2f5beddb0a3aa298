"""HTTP proxies on the way to a coordinator: which one, and a line through it by CONNECT."""

from __future__ import annotations

import base64
import http.client
import re
import socket
import urllib.request
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from tideline.core.errors import ConfigRefused, FederationError, Unreachable
from tideline.core.tokens import Place

OFF = "off"  # for a proxy that is none
PORT = 3128
REFUSED = re.compile(r"Tunnel connection failed: (\d{3}) ?(.*)")


@dataclass(frozen=True)
class Proxy:
    """A proxy. user, password: of its basic authentication; source: the option or variable that names it."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    source: str = "--proxy"

    @property
    def name(self) -> str:
        """Where it is, for people."""
        return f"{self.bracketed}:{self.port}"

    @property
    def bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def authorization(self) -> dict[str, str]:
        """The header that proves who asks, if it wants one."""
        if not self.user:
            return {}
        return {"Proxy-Authorization": "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()}


def proxy_for(place: Place, given: str = "") -> Proxy | None:
    """The proxy for a place: the one that is given, or else that of the environment. Raises ConfigRefused.

    given: a URL, or `off`. A proxy of the environment is for other machines than this one, and for none that NO_PROXY names.
    """
    if given:
        return None if given == OFF else proxy_in(given, "--proxy")
    known = urllib.request.getproxies_environment()
    if place.here or urllib.request.proxy_bypass(f"{place.host}:{place.port}"):
        return None
    kinds = {"http": ("http",), "https": ("https",), "grpc": ("grpc", "https")}[place.scheme]
    source = next((kind for kind in (*kinds, "all") if known.get(kind)), None)
    return None if source is None else proxy_in(known[source], f"{source.upper()}_PROXY")


def proxy_in(text: str, source: str) -> Proxy:
    """A proxy from its URL, http://[USER:PASSWORD@]HOST[:PORT]. Raises ConfigRefused, which shows no password."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        port, host = parts.port or PORT, parts.hostname or ""
    except ValueError:
        parts, port, host = urlsplit(""), 0, ""
    if parts.scheme != "http" or not host:
        scheme = f", and {parts.scheme}:// none that is spoken here" if parts.scheme not in ("", "http") else ""
        todo = "Write it as http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT with %40 for an @ in the password"
        raise ConfigRefused(f"{source} names no HTTP proxy{scheme}", todo, path=source)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Proxy(host=host, port=port, user=user, password=password, source=source)


def dial(host: str, port: int, seconds: float, proxy: Proxy | None = None) -> socket.socket:
    """A line to a host, through a proxy if there is one. Raises OSError, and Unreachable for what the proxy says or does."""
    if proxy is None:
        return socket.create_connection((host, port), seconds)
    asking = http.client.HTTPConnection(proxy.bracketed, proxy.port, timeout=seconds)
    asking.set_tunnel(host, port, proxy.authorization)
    try:
        asking.connect()
    except http.client.HTTPException as cause:
        raise mute(proxy, f"it speaks no HTTP ({type(cause).__name__})") from None
    except OSError as cause:
        if said := REFUSED.match(str(cause)):
            raise denied(proxy, f"{host}:{port}", int(said[1]), said[2]) from None
        raise mute(proxy, cause.strerror or str(cause)) from None
    line: socket.socket = asking.sock
    return line


def mute(proxy: Proxy, why: str) -> FederationError:
    """A proxy that cannot be used."""
    what = f"The proxy {proxy.name} does not answer: {why}"
    return Unreachable(what, f"See that {proxy.source} names the right one; {OFF!r} as --proxy calls without any")


def denied(proxy: Proxy, place: str, status: int, reason: str = "") -> FederationError:
    """A proxy that does not let a call to a place through."""
    at = f"The proxy {proxy.name}"
    if status == 407 and not proxy.user:
        todo = f"Write them into {proxy.source}, as http://USER:PASSWORD@{proxy.name}"
        return Unreachable(f"{at} asks for a user name and a password (407)", todo)
    if status == 407:
        todo = f"Correct them in {proxy.source}; special characters are written as %40 for @ and %3A for :"
        return Unreachable(f"{at} does not accept the user name {proxy.user!r} with its password (407)", todo)
    if status in (502, 503, 504):
        what = f"{at} cannot reach {place} ({status} {reason})".replace(" )", ")")
        return Unreachable(what, f"See that {place} is right and the coordinator runs, then ask whoever runs the proxy")
    what = f"{at} does not let calls to {place} through ({status} {reason})".replace(" )", ")")
    return Unreachable(what, f"Ask whoever runs the proxy to allow CONNECT to {place}")
