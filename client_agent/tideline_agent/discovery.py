"""Where the coordinators are and how they are verified: from the owner's options, else the token, else the agent's home."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from tideline.core.errors import ConfigRefused
from tideline.core.tokens import Token, Trust, place_of, read_token
from tideline_agent.home.identity import Memo, recall, remember
from tideline_agent.link import Endpoints, authority, proxy_for, vouches
from tideline_agent.settings import AgentSettings, check_address

BLOCK = re.compile(rb"-----BEGIN [ -~]+?-----[\x00-\x7f]+?-----END [ -~]+?-----")


@dataclass(frozen=True)
class Found:
    """What is known before anybody is called.

    pinned: the fingerprint of an authority that is still to be fetched. memo: what the home is to know once somebody answers.
    """

    endpoints: Endpoints
    pinned: bytes = b""
    memo: Memo = Memo("", (), "")

    @property
    def called(self) -> tuple[str, ...]:
        """All addresses: those that were given and those that were announced."""
        return (*self.endpoints.addresses, *self.memo.others)


def find(settings: AgentSettings) -> Found:
    """The coordinators' endpoints. Raises ConfigRefused where none is known, or one would be called in the clear."""
    token, memo = read_token(settings.token), recall(settings.folder)
    if memo is not None and memo.token == digest_of(token) != "":
        token = Token(token.secret)  # the home knows what it says, and what has become of that
    known = known_of(settings, token, memo)
    addresses = known.addresses
    if not addresses:
        what = f"No coordinator is known: neither the token nor the home {settings.folder} names one"
        raise ConfigRefused(what, "Give --token from tideline invite, or --coordinator HOST:PORT, or --coordinator https://HOST")
    proxy = proxy_on_the_way(addresses, settings.proxy)
    own = None
    if settings.tls_cert is not None and settings.tls_key is not None:
        own = pem(settings.tls_key, "--tls-key"), pem(settings.tls_cert, "--tls-cert")
    if settings.ca is not None:
        return Found(Endpoints(addresses, pem(settings.ca, "--ca"), own=own, proxy=proxy), memo=known)
    trust, ca = trusted(token, memo)
    if trust is Trust.PINNED and not ca:
        return Found(Endpoints(addresses, own=own, proxy=proxy), token.authority, known)
    if trust is Trust.PLAIN:
        for address in addresses:
            check_address(address, settings.insecure)
    return Found(Endpoints(addresses, ca or None, trust is Trust.SYSTEM, own, proxy), memo=known)


def known_of(settings: AgentSettings, token: Token, memo: Memo | None) -> Memo:
    """What the home is to know. Other addresses of the owner, or a new token, begin anew: what was announced is forgotten."""
    digest = memo.token if memo is not None and not token.addresses else digest_of(token)
    if settings.pin_addresses or memo is None or token.addresses or settings.addresses not in ((), memo.given):
        addresses = settings.addresses or token.addresses or (memo.addresses if memo is not None else ())
        return Memo(settings.name, addresses, "", given=settings.addresses, token=digest)
    return replace(memo, name=settings.name, addresses=tuple(dict.fromkeys((*memo.given, *memo.addresses))), token=digest)


def digest_of(token: Token) -> str:
    """A token, without what it is good for; nothing where there is none."""
    return sha256(token.secret.encode()).hexdigest() if token.secret else ""


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


def memo_of(known: Memo, endpoints: Endpoints) -> Memo:
    """What the home knows with these endpoints."""
    trust = Trust.PINNED if endpoints.roots else Trust.SYSTEM if endpoints.system else Trust.PLAIN
    return replace(known, addresses=endpoints.addresses, trust=trust.name.lower(), ca=(endpoints.roots or b"").decode())


def note(settings: AgentSettings, endpoints: Endpoints) -> None:
    """Remember what has answered, so that the agent starts again without a token."""
    known = known_of(settings, read_token(settings.token), recall(settings.folder))
    remember(settings.folder, memo_of(known, endpoints))


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
