"""To which addresses webhooks may go. Users name them, and the coordinator stands where users do not: beside databases, and
beside what clouds tell their machines.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tideline.core.errors import ConfigRefused, Refused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Sequence[str]]
MOST_ADDRESSES = 4  # of a host that are tried
ALL = "all"  # in the place of a network: every private one
# What a cloud tells its machines lies at a public address, too.
HIDDEN: tuple[Network, ...] = (ipaddress.ip_network("168.63.129.16/32"),)
# Addresses of IPv6 that stand for one of IPv4: where that one lies in them, from the left.
NAT64, SIXTOFOUR = ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("2002::/16")
UNICAST = ipaddress.IPv6Network("2000::/3")  # all of IPv6 that is anybody's


class AddressRefused(Refused):
    """A webhook's host has no address to which notices may go."""


@dataclass(frozen=True)
class Allowed:
    """The private networks to which notices may go as well. every: all that are private, but not those of one link."""

    networks: tuple[Network, ...] = ()
    every: bool = False

    def private(self, address: Address) -> bool:
        """Whether an address is one that the operator allows beside public ones."""
        return any(address in network for network in self.networks) or (self.every and unlinked(address))


def unlinked(address: Address) -> bool:
    """Whether an address is of this machine or of private networks, and not of one link, as those of clouds' metadata are."""
    return address.is_private and not (address.is_link_local or address.is_multicast or address.is_unspecified)


def allowed_in(texts: Sequence[str]) -> Allowed:
    """What --notify-private names. Raises ConfigRefused."""
    networks = list[Network]()
    for text in texts:
        try:
            networks += [] if text == ALL else [ipaddress.ip_network(text)]
        except ValueError:
            todo = f"Write a network such as 10.0.0.0/8, an address, or {ALL}"
            raise ConfigRefused(f"--notify-private {text!r} is no network", todo, path="notify_private") from None
    return Allowed(tuple(networks), ALL in texts)


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, as this machine resolves names. Raises OSError."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def meant(address: Address) -> Address:
    """The address of IPv4 that one of IPv6 stands for; else itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in NAT64:
        return ipaddress.IPv4Address(address.packed[12:])
    if address in SIXTOFOUR:
        return ipaddress.IPv4Address(address.packed[2:6])
    return address


def public(address: Address) -> bool:
    """Whether an address is anybody's: not this machine's, nor of a private network, a link, a group or a cloud's metadata."""
    shared = address.version == 4 or address in UNICAST
    return address.is_global and shared and not (address.is_multicast or any(address in network for network in HIDDEN))


def chosen(host: str, port: int, allowed: Allowed, secure: bool, find: Resolve = resolve) -> list[str]:
    """The addresses to connect to, one after the other: all of a host's are looked at, and one that is refused refuses the host.

    secure: whether the line is encrypted; only private networks may have others. Raises AddressRefused, in the same words for
    a name that nobody has and for one that leads where notices may not go: else users could ask for names of our network.
    """
    try:
        found = [ipaddress.ip_address(text.partition("%")[0]) for text in find(host, port)]
    except (OSError, ValueError, UnicodeError):
        found = []
    for address in map(meant, found):
        if not (allowed.private(address) or (secure and public(address))):
            raise refusal(host)
    if not found:
        raise refusal(host)
    return list(dict.fromkeys(map(str, found)))[:MOST_ADDRESSES]


def refusal(host: str) -> AddressRefused:
    return AddressRefused(
        f"{host} has no address to which notices may go",
        "Check the name. http:// and private addresses take --notify-private NETWORK at the coordinator",
    )
