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
    """Addresses, each of which may be called, and authorities (PEM), at least one of which is known. Either may be nothing.

    Addresses that would be called in the clear are left out.
    """

    addresses: tuple[str, ...] = ()
    authorities: bytes = b""


def announced_in(message: Announcement, endpoints: Endpoints, insecure: bool) -> Announced:
    """What a coordinator announces. Raises Refused for what is malformed, too much, or not to be believed."""
    return Announced(addresses_in(message.addresses, endpoints, insecure), authorities_in(message.authorities, endpoints))


def addresses_in(addresses: Sequence[str], endpoints: Endpoints, insecure: bool) -> tuple[str, ...]:
    if len(addresses) > MOST_ANNOUNCED:
        raise Refused(f"{len(addresses)} addresses are announced, and {MOST_ANNOUNCED} are the most", TODO)
    tls, good, why = endpoints.roots is not None or endpoints.system, list[str](), ""
    for each in addresses:
        if len(each) > MOST_ADDRESS or not (each.isascii() and each.isprintable()):
            raise Refused(f"An address is announced that is too long, or has odd characters: {each[:80]!a}", TODO)
        try:
            place = place_of(each)
        except ConfigRefused as error:
            raise Refused(f"An announced address cannot be called: {error.what}", TODO) from None
        if words := in_the_clear(each, place.scheme == "http" and tls, tls or insecure):
            why = words  # for other agents, perhaps: one that is started with TLS calls it
        else:
            good.append(each)
    if addresses and not good:
        raise Refused(f"No announced address may be called: {why}", TODO)
    return tuple(dict.fromkeys(good))


def in_the_clear(address: str, plain: bool, secured: bool) -> str:
    """Why an address may not be called, as calls could be read on their way; nothing where it may."""
    if plain:
        return f"calls to {address} would be in the clear, and this agent was started with TLS"
    try:
        check_address(address, secured)
    except ConfigRefused as error:
        return error.what
    return ""


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
