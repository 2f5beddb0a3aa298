"""Connections by address: which are cut, and when."""

from __future__ import annotations

import contextlib
import fcntl
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tideline.engine.process.resources import open_many_files
from tideline_server import connections
from tideline_server.connections import PROOF_SECONDS, SPARE, Share, Warden, connected, peer_in, peer_of, share_of, shut_down


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def port() -> Iterator[tuple[socket.socket, int]]:
    """A socket that listens."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made, made.getsockname()[1]


@contextlib.contextmanager
def lines(door: socket.socket, count: int) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Both ends of connections."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            there = stack.enter_context(socket.create_connection(door.getsockname()))
            made.append((there, stack.enter_context(door.accept()[0])))
        yield made


def cut(line: socket.socket) -> bool:
    """Whether the other end has ended a connection."""
    line.setblocking(False)
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False


def test_too_many_from_one_address(port: tuple[socket.socket, int]) -> None:
    """The oldest that prove nothing go; one over which somebody has proven himself stays."""
    door, number = port
    clock = Clock()
    warden = Warden(clock)
    warden.watch(number, Share(3, 100))
    with lines(door, 2) as old:
        warden.check()
        clock.now = 1.0
        warden.proven(number, peer_of(*old[0][0].getsockname()))
        with lines(door, 2) as new:
            warden.check()
            assert [cut(each[0]) for each in (*old, *new)] == [False, True, False, False]
    assert warden.cuts == 1


def test_who_proves_nothing_for_long(port: tuple[socket.socket, int]) -> None:
    """Is cut, also where there is room."""
    door, number = port
    clock = Clock()
    warden = Warden(clock)
    warden.watch(number, Share(0, 100))
    with lines(door, 2) as made:
        warden.proven(number, peer_in(f"ipv4:127.0.0.1:{made[0][0].getsockname()[1]}"))
        warden.check()
        clock.now = PROOF_SECONDS + 1
        warden.check()
        assert [cut(each[0]) for each in made] == [False, True]


def test_one_that_is_to_be_cut(port: tuple[socket.socket, int]) -> None:
    """And no other."""
    door, number = port
    warden = Warden()
    warden.watch(number, Share(0, 100))
    with lines(door, 2) as made:
        warden.cut(peer_of(*made[1][0].getsockname()))
        assert warden.due()
        warden.check()
        assert [cut(each[0]) for each in made] == [False, True]


def test_too_many_in_all(port: tuple[socket.socket, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many one address may have; or too many of which nobody knows whose they are."""
    door, number = port
    warden = Warden()
    warden.watch(number, Share(0, 2))
    with lines(door, 3) as made:
        warden.check()
        assert sum(cut(each[0]) for each in made) == 1
    monkeypatch.setattr(connections, "UNPROVEN", 1)
    warden.watch(number, Share(0, 100))
    with lines(door, 3) as made:
        warden.check()
        assert sum(cut(each[0]) for each in made) == 2


def test_peers() -> None:
    """As gRPC names them, an IPv4 address always as such."""
    assert peer_in("ipv4:10.0.0.7:41") == peer_in("ipv6:[::ffff:10.0.0.7]:41") == ("10.0.0.7", 41)
    assert peer_in("ipv6:%5B::1%5D:5") == ("::1", 5) and peer_in("unix:x") is None and peer_in("ipv4:x:y") is None


def test_descriptors() -> None:
    """The soft limit becomes the hard one; ports have parts of it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        assert share_of(7, 0.5, 8192) == Share(7, (1024 - SPARE) // 2)
        assert share_of(7, 0.5, 100) == Share(7, 100)
        open_many_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_to_look_at_descriptors_ends_no_lock_of_a_file(tmp_path: Path) -> None:
    """A database's locks are the process's, and end with the first descriptor of its file that is closed, whichever it is."""
    path = tmp_path / "locked"
    code = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with path.open("w+b") as file, socket.create_server(("127.0.0.1", 0)) as server:
        fcntl.lockf(file, fcntl.LOCK_EX)
        with socket.create_connection(server.getsockname()) as one, server.accept()[0] as other:
            assert one.getsockname() in [peer for _, peer, _ in connected({server.getsockname()[1]})]
            assert other.fileno() >= 0 and other.getpeername() == one.getsockname()
        assert not shut_down(file.fileno(), server.getsockname()[1], ("127.0.0.1", 1))
        asked = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=False)
        assert asked.returncode == 1 and b"BlockingIOError" in asked.stderr
