"""Webhooks go to public addresses, and to private ones that the operator names: whatever a name resolves to."""

from __future__ import annotations

import pytest

from tideline.core.errors import ConfigRefused
from tideline_server.notify.addresses import AddressRefused, Allowed, allowed_in, chosen, resolve

PUBLIC = "93.184.216.34"
REFUSED = (
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "168.63.129.16", "0.0.0.0"),
    *("255.255.255.255", "224.0.0.1", "192.0.2.1", "::", "::1", "::7f00:1", "fe80::1", "fe80::1%eth0", "fc00::1"),
    *("fd00:ec2::254", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"),
    *("2002:7f00:1::1", "2001::1"),
)


def choose(addresses: list[str], allowed: Allowed | None = None, tls: bool = True) -> list[str]:
    """The addresses that are called for a name that leads to these."""
    return chosen("host", 443 if tls else 80, allowed or Allowed(), tls, lambda host, port: addresses)


def test_addresses_that_are_nobodys_business(subtests: pytest.Subtests) -> None:
    """Of this machine, of private networks, of links, of groups, of clouds' metadata; also as IPv6 writes those of IPv4."""
    for address in REFUSED:
        with subtests.test(address), pytest.raises(AddressRefused, match="host has no address to which notices may go"):
            choose([address])


def test_public_addresses() -> None:
    """Over TLS, and not without."""
    for address in (PUBLIC, "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822"):
        assert choose([address, address]) == [address]
        with pytest.raises(AddressRefused):
            choose([address], tls=False)


def test_one_that_is_refused_refuses_all() -> None:
    """A name may have several addresses, of which the last would be tried if the first is dead."""
    with pytest.raises(AddressRefused):
        choose([PUBLIC, "127.0.0.1"])


def test_a_name_that_is_not_there_is_refused_in_the_same_words() -> None:
    """Whoever asks cannot find out which names our network has."""

    def nobody(host: str, port: int) -> list[str]:
        raise OSError("unknown")

    words = set()
    for find in (nobody, lambda host, port: ["10.0.0.1"], lambda host, port: [], lambda host, port: ["no address"]):
        with pytest.raises(AddressRefused) as caught:
            chosen("db.internal", 443, Allowed(), True, find)
        words.add(str(caught.value))
    assert len(words) == 1


def test_networks_that_the_operator_names() -> None:
    """They alone, with and without TLS. `all` is every private one, and none of a link."""
    some = allowed_in(["10.0.0.0/8", "::1"])
    for address in ("10.9.9.9", "::1", "::ffff:a00:1"):
        assert choose([address], some, tls=False) == [address]
    every = allowed_in(["all"])
    for address in ("127.0.0.1", "192.168.0.9", "fc00::1"):
        assert choose([address], every, tls=False)
    for address, networks in (("192.168.0.9", some), ("169.254.169.254", every), ("0.0.0.0", every), ("224.0.0.1", every)):
        with pytest.raises(AddressRefused):
            choose([address], networks, tls=False)
    linked = allowed_in(["169.254.0.0/16"])
    assert choose(["169.254.1.1"], linked, tls=False), "that is the operator's word"
    with pytest.raises(ConfigRefused, match="/8' is no network"):
        allowed_in(["10.0.0.1/8"])


def test_names_of_this_machine() -> None:
    """As its resolver has them; numbers in odd forms are what they come to."""
    assert set(resolve("localhost", 80)) <= {"127.0.0.1", "::1"}
    for odd in ("127.1", "2130706433", "0x7f.1", "localhost"):
        with pytest.raises(AddressRefused):
            chosen(odd, 443, Allowed(), True)
