"""Sockets of the tests' own servers end with their threads."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.acceptance.firewall.proxy import connecting
from tests.acceptance.tap import tapped
from tests.acceptance.wire import Wire


def refused(port: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5.0)


def test_nobody_listens_afterwards() -> None:
    """Nor does a thread wait in `accept` under a number that another socket gets."""
    threads = threading.active_count()
    with connecting() as proxy, tapped(proxy.port) as tap:
        pass
    refused(proxy.port)
    refused(tap.port)
    assert threading.active_count() == threads
    wire = Wire(proxy.port)
    wire.close()
    refused(wire.port)
