"""Where the coordinators are and how they are verified: from the owner's options, else the token, else the agent's home."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tideline.core.errors import ConfigRefused
from tideline.core.tokens import Token, Trust, place_of, read_token
from tideline_agent.home.identity import Memo, recall, remember
from tideline_agent.link import Endpoints, authority, proxy_for, vouches
from tideline_agent.settings import AgentSettings, check_address

BLOCK = re.compile(rb"-----BEGIN [ -~]+?-----[\x00-\x7f]+?-----END [ -~]+?-----")


@dataclass(frozen=True)
class Found:
    """What is known before anybody is called. pinned: the fingerprint of an authority that is still to be fetched."""

    endpoints: Endpoints
    pinned: bytes = b""


def find(settings: AgentSettings) -> Found:
    """The coordinators' endpoints. Raises ConfigRefused where none is known, or one would be called in the clear."""
    token, memo = read_token(settings.token), recall(settings.folder)
    addresses = settings.addresses or token.addresses or (memo.addresses if memo else ())
    if not addresses:
        what = f"No coordinator is known: neither the token nor the home {settings.folder} names one"
        raise ConfigRefused(what, "Give --token from tideline invite, or --coordinator HOST:PORT, or --coordinator https://HOST")
    proxy = proxy_on_the_way(addresses, settings.proxy)
    own = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        own = pem(settings.tls_key, "--tls-key"), pem(settings.tls_cert, "--tls-cert")
    if settings.ca is not None:
        return Found(Endpoints(addresses, pem(settings.ca, "--ca"), own=own, proxy=proxy))
    trust, ca = trusted(token, memo)
    if trust is Trust.PINNED and not ca:
        return Found(Endpoints(addresses, own=own, proxy=proxy), token.authority)
    if trust is Trust.PLAIN:
        for address in addresses:
            check_address(address, settings.insecure)
    return Found(Endpoints(addresses, ca or None, trust is Trust.SYSTEM, own, proxy))


def proxy_on_the_way(addresses: Sequence[str], given: str) -> str:
    """The proxy as it is given, if it can be one: also that of the environment. Raises ConfigRefused."""
    for address in addresses:
        check_address(address, secured=True)
        proxy_for(place_of(address), given)
    return given


def trusted(token: Token, memo: Memo | None) -> tuple[Trust, bytes]:
    """How the coordinators are known, and the authority's certificate if the home has it."""
    stored = blocks(memo.ca.encode()) if memo else b""
    if token.addresses or token.trust is not Trust.PLAIN:
        return token.trust, stored if stored and vouches(stored, token.authority) else b""
    return (Trust[memo.trust.upper()], stored) if memo else (Trust.PLAIN, b"")


def introduced(found: Found, again: Callable[[Callable[[], bytes]], bytes]) -> Endpoints:
    """The endpoints with their authority's certificate, fetched by `again` where it is not known. Raises IdentityRefused."""
    if not found.pinned:
        return found.endpoints
    certificate = again(lambda: authority(found.endpoints, found.pinned))
    return replace(found.endpoints, roots=certificate)


def note(settings: AgentSettings, endpoints: Endpoints) -> None:
    """Remember what has answered."""
    trust = Trust.PINNED if endpoints.roots else Trust.SYSTEM if endpoints.system else Trust.PLAIN
    remember(settings.folder, Memo(settings.name, endpoints.addresses, trust.name.lower(), (endpoints.roots or b"").decode()))


def pem(path: Path, option: str) -> bytes:
    """A PEM file, without what people write beside its blocks. Raises ConfigRefused."""
    try:
        found = blocks(path.read_bytes())
    except OSError as cause:
        raise ConfigRefused(f"{option} {path} cannot be read: {cause.strerror}", "Correct the path, or its permissions") from None
    if not found:
        raise ConfigRefused(f"{option} {path} is no PEM file", "Give a file with -----BEGIN and -----END lines")
    return found


def blocks(text: bytes) -> bytes:
    """The blocks of a PEM file. What stands beside them may be of any encoding, and not all that read them take that."""
    return b"".join(block + b"\n" for block in BLOCK.findall(text))
