"""A Postgres of the tests' own, which they may kill."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psycopg

PATIENCE_SECONDS = 240.0
LENT = "postgres"  # as whom the server runs where the tests are root


class Postgres:
    """A Postgres on a folder that survives kills. The server refuses to be root, so root lends it another user."""

    def __init__(self, folder: Path) -> None:
        self.port, self.folder = free_port(), folder / "postgres"
        self.user = LENT if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
        if os.getuid() == 0:
            self.folder = lent()
        else:
            self.folder.mkdir(mode=0o700)
        self.do("initdb", "--pgdata", "data", "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--locale", "C")
        self.process: subprocess.Popen[bytes] | None = None
        self.start()
        with psycopg.connect(self.url_of("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE tideline")

    @property
    def url(self) -> str:
        """Where the tests' database is."""
        return self.url_of("tideline")

    def url_of(self, database: str) -> str:
        """The URL of a database of it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start, and wait until it answers; after a kill it recovers first."""
        options = ("-p", str(self.port), "-h", "127.0.0.1", "-k", str(self.folder), "-D", str(self.folder / "data"))
        with (self.folder / "log").open("ab") as log:
            command = [program("postgres"), *options]
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **self.who()
            )
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.answers():
            assert time.monotonic() < end and self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.05)

    def answers(self) -> bool:
        """Whether it lets us in."""
        with suppress(psycopg.OperationalError):
            psycopg.connect(self.url_of("postgres"), connect_timeout=2).close()
            return True
        return False

    def kill(self) -> None:
        """kill -9 of all its processes, as when the machine loses power; what it had synced is there."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def do(self, name: str, *args: str) -> None:
        """Run one of its programs to its end."""
        command = [program(name), *args]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, **self.who())
        assert done.returncode == 0, done.stderr

    def who(self) -> dict[str, str]:
        """As whom its programs run. The way there is opened each time, should TMPDIR be one that is closed to others."""
        if os.getuid() != 0:
            return {}
        reachable(self.folder)
        return {"user": self.user}


def lent() -> Path:
    """A folder of the lent user's until this process ends: not in pytest's, which each pytest that starts closes to others, so
    that a server under way fails.
    """
    folder = Path(tempfile.mkdtemp(prefix="tideline-postgres-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.chown(folder, LENT)
    return folder


def why_no_postgres() -> str:
    """Why no Postgres of our own can be started; nothing if it can."""
    if not programs():
        return "NOT TESTED: no Postgres server is installed (initdb was looked for)"
    return why_not_lent() if os.getuid() == 0 else ""


def why_not_lent() -> str:
    """Why root cannot lend the server a user of its own, in a folder such as tests get; nothing if it can."""
    try:
        folder = lent()
        reachable(folder)
        for command in ((program("initdb"), "--version"), ("touch", "written")):
            subprocess.run(command, cwd=folder, user=LENT, capture_output=True, check=True)
    except (OSError, LookupError, subprocess.CalledProcessError) as error:
        return f"NOT TESTED: Postgres refuses to be root, and nothing runs here as the user {LENT}: {error}"
    return ""


def program(name: str) -> str:
    """The path of one of Postgres's programs."""
    return str(Path(programs()[-1]) / name)


def programs() -> Sequence[str]:
    """The folders that hold Postgres's programs, the newest last."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    found = [str(p.parent) for p in sorted(versions, key=lambda p: float(p.parts[-3]))]
    there = shutil.which("initdb")
    return found or ([str(Path(there).resolve().parent)] if there else [])


def reachable(folder: Path) -> None:
    """Let another user pass through the folders above, which tests make for their own user only."""
    for above in folder.parents:
        if above.stat().st_uid == os.getuid() and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
