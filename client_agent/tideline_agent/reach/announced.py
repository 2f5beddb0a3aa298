"""An announcement as it comes, held to its bounds before anything of it is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tideline.core.errors import ConfigRefused, Refused
from tideline.core.tokens import MOST_ADDRESS, MOST_ANNOUNCED, MOST_AUTHORITIES, MOST_PEM, place_of
from tideline_agent.link import Announcement, Endpoints, fingerprints
from tideline_agent.settings import check_address

MOST_ID = 64  # characters
TODO = "The coordinator's operator corrects --advertise, or --tls-ca"


@dataclass(frozen=True)
class Announced:
    """Addresses, each of which may be called, and authorities (PEM), at least one of which is known. Either may be nothing."""

    addresses: tuple[str, ...] = ()
    authorities: bytes = b""


def announced_in(message: Announcement, endpoints: Endpoints, insecure: bool) -> Announced:
    """What a coordinator announces. Raises Refused for what is malformed, too much, or not to be believed."""
    return Announced(addresses_in(message.addresses, endpoints, insecure), authorities_in(message.authorities, endpoints))


def addresses_in(addresses: Sequence[str], endpoints: Endpoints, insecure: bool) -> tuple[str, ...]:
    if len(addresses) > MOST_ANNOUNCED:
        raise Refused(f"{len(addresses)} addresses are announced, and {MOST_ANNOUNCED} are the most", TODO)
    tls = endpoints.roots is not None or endpoints.system
    for each in addresses:
        if len(each) > MOST_ADDRESS or not (each.isascii() and each.isprintable()):
            raise Refused(f"An address is announced that is too long, or has odd characters: {each[:80]!a}", TODO)
        try:
            place = place_of(each)
            check_address(each, secured=tls or insecure)
        except ConfigRefused as error:
            raise Refused(f"An announced address cannot be called: {error.what}", TODO) from None
        if tls and place.scheme == "http":
            raise Refused(f"{each} is announced, where calls would be in the clear; this agent was started with TLS", TODO)
    return tuple(dict.fromkeys(addresses))


def authorities_in(text: str, endpoints: Endpoints) -> bytes:
    """The authorities, where this agent knows coordinators by such. Raises Refused where none of them is a known one."""
    if not text or endpoints.roots is None:
        return b""
    pem = text.encode("ascii", "replace")
    try:
        found = fingerprints(pem) if len(pem) <= MOST_PEM and pem.count(b"-----BEGIN") <= MOST_AUTHORITIES else frozenset()
    except ValueError:
        found = frozenset()
    if not found:
        raise Refused("What is announced as authorities is no file of certificates, or too much", TODO)
    if not found & fingerprints(endpoints.roots):
        raise Refused("None of the announced authorities is one that this agent knows", f"{TODO}; or give a new token")
    return pem
