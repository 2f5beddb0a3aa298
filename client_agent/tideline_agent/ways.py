"""The ways to a coordinator, gRPC and HTTPS, tried by a call that needs no proof: who is there?"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tideline.core.errors import FederationError
from tideline.core.tokens import place_of
from tideline_agent.home.identity import Keys
from tideline_agent.link import Endpoints, GrpcLink, authority, dial, proxy_for

GRPC_PORT = 7800
CONNECT_SECONDS = 3.0  # a firewall that drops what it forbids answers nothing
KINDS = {"grpc": "gRPC", "https": "HTTPS", "http": "HTTP"}


@dataclass(frozen=True)
class Candidate:
    """An address to try. named: whether the token, the home or an option says it; else it is a guess."""

    address: str
    named: bool


@dataclass(frozen=True)
class Tried:
    """What came of it. error: why it does not work; nothing where it does."""

    address: str
    named: bool
    words: str
    error: str = ""


def candidates(addresses: Sequence[str]) -> list[Candidate]:
    """The addresses, and for each host that is known over one kind only a guess of the other."""
    places = [place_of(each) for each in addresses]
    grpc = {place.host for place in places if place.scheme == "grpc"}
    web = {place.host for place in places if place.scheme != "grpc"}
    guesses = [f"https://{bracketed(host)}" for host in sorted(grpc - web)]
    guesses += [f"{bracketed(host)}:{GRPC_PORT}" for host in sorted(web - grpc)]
    return [*(Candidate(each, True) for each in addresses), *(Candidate(each, False) for each in guesses)]


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def attempted(candidate: Candidate, endpoints: Endpoints, pinned: bytes, name: str) -> Tried:
    """Try an address. Whatever goes wrong is what is found."""
    address, place = candidate.address, place_of(candidate.address)
    try:
        proxy = proxy_for(place, endpoints.proxy)
        dial(place.host, place.port, CONNECT_SECONDS, proxy).close()
        there = replace(endpoints, addresses=(address,))
        if pinned and there.roots is None:
            there = replace(there, roots=authority(there, pinned))
        with contextlib.closing(GrpcLink(there, name, Keys.made(), threading.Event(), bulk=False)) as link:
            link.hello()
    except FederationError as error:
        why = error.what
    except OSError as error:
        why = error.strerror or str(error)
    else:
        through = f" through the proxy {proxy.name}" if proxy else ""
        return Tried(address, candidate.named, f"{KINDS[place.scheme]} at {address} works{through}")
    return Tried(address, candidate.named, f"{KINDS[place.scheme]} at {address} does not work: {why}", why)
