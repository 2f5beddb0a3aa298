"""Plays the lines of docs/runbook.md as they stand there. Only hosts, ports and folders are others: a test has one machine.

Who plays a chapter says which of its blocks; a block that nobody plays fails `test_whole.py`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.acceptance.harness import Net
from tests.acceptance.shell import commands
from tests.docs.manual import DOCS, FENCE, text_of
from tests.services import free_port, programs
from tideline.client.certificates import issue_coordinator
from tideline.client.http import Client, Endpoint
from tideline.core.errors import Unreachable

PAGE = DOCS / "runbook.md"
INTRODUCTION = "Runbook: back up, move, lose"
ROUNDS = 8
LIMIT_SECONDS = 240
SERVES = re.compile(r"^tideline (coordinator|agent) ", re.MULTILINE)
ROSTER = {"hospital-a": "source", "hospital-b": "source", "hospital-c": "target"}
EXPERIMENT: dict[str, Any] = {
    "method": "fedavg",
    "config": {"rounds": ROUNDS, "rate": 0.03},
    "world": {"model": "lenet", "inputs": [1, 28, 28], "classes": 10},
    "roster": ROSTER,
    "seed": 1,
    "reference": None,
}
F = TypeVar("F", bound=Callable[..., object])
PLAYED: dict[tuple[str, int], str] = {}  # blocks, and the test that plays each


def chapters() -> dict[str, list[str]]:
    """The shell blocks below each heading, in order."""
    found: dict[str, list[str]] = {}
    heads = re.split(r"^#+ (.+)$", FENCE.sub(lambda each: each.group().replace("\n#", "\n\0"), text_of(PAGE)), flags=re.MULTILINE)
    for head, text in zip(heads[1::2], heads[2::2], strict=True):
        found[head] = [block for kind, block in FENCE.findall(text.replace("\0", "#")) if kind == "sh"]
    return found


def plays(chapter: str, *blocks: int) -> Callable[[F], F]:
    """Says that a test plays these blocks of a chapter, by their places from 0 on; they come one after the other."""

    def marked(test: F) -> F:
        for block in blocks:
            PLAYED[chapter, block] = test.__name__
        return test

    return marked


class Book:
    """A federation beneath a folder, and a shell that knows the page's names."""

    def __init__(self, folder: Path, net: Net, first: Path, data: Path) -> None:
        self.folder, self.net, self.played = folder, net, {(INTRODUCTION, 0)}
        self.ports = {each: free_port() for each in ("grpc", "http", "new grpc", "new http", "third grpc", "third http")}
        self.names = {
            "coordinator.example:7800": f"127.0.0.1:{self.ports['grpc']}",
            "coordinator.example:7880": f"127.0.0.1:{self.ports['http']}",
            "new.example:7800": f"127.0.0.2:{self.ports['new grpc']}",
            "third.example:7800": f"127.0.0.1:{self.ports['third grpc']}",
            "coordinator.example": "127.0.0.1",
            "new.example": "127.0.0.2",
            "/srv/data": str(data),
            "/srv": str(folder / "srv"),
            "/backup": str(folder / "backup"),
        }
        for each in ("srv", "srv/agents", "srv/parts"):
            (folder / each).mkdir()
        issue_coordinator(folder / "srv" / "tls", ["127.0.0.1"])
        path = os.pathsep.join((str(first), *programs()[-1:], os.environ["PATH"]))
        self.environment = {**net.environment(), "PATH": path, "HOME": str(folder)}
        for line in blocks_of(INTRODUCTION)[0].splitlines():
            self.export(line)

    def spelt(self, text: str) -> str:
        """A text of the page, with this machine's names."""
        for name in sorted(self.names, key=len, reverse=True):
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", self.names[name], text)
        return text

    def export(self, line: str) -> None:
        """Variables that the page has a shell export."""
        for word in shlex.split(self.spelt(line))[1:]:
            name, _, value = word.partition("=")
            self.environment[name] = value

    def play(self, chapter: str, block: int, **serving: Any) -> str:
        """What a block prints. A line that serves is left running, as `start` does it."""
        text = blocks_of(chapter)[block]
        self.played.add((chapter, block))
        serves = SERVES.search(text)
        said = self.shell(text[: serves.start()] if serves else text)
        if serves:
            self.start(text[serves.start() :], **serving)
        for line in text.splitlines():
            if line.startswith("export "):
                self.export(line)
        return said

    def shell(self, text: str) -> str:
        """What lines print. Fails where one of them does."""
        given = {"cwd": self.folder, "env": self.environment, "timeout": LIMIT_SECONDS, "capture_output": True, "text": True}
        done = subprocess.run(["bash", "-ec", self.spelt(text)], check=False, **given)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        return str(done.stdout + done.stderr)

    def start(
        self, line: str, name: str = "coordinator", where: str = "", host: str = "127.0.0.1", more: Sequence[str] = ()
    ) -> None:
        """Leave a line running, with ports that are free: the page's are the usual ones. where: `new` or `third`."""
        words = shlex.split(self.spelt(line.replace("\\\n", " ").replace("--host 0.0.0.0", f"--host {host}")))[1:]
        if words[0] == "coordinator":
            grpc, http = (str(self.ports[f"{where} {kind}".strip()]) for kind in ("grpc", "http"))
            words += ["--grpc-port", grpc, "--http-port", http, *more]
        else:
            words += ["--device", "cpu", *more]
        self.net.more = {key: value for key, value in self.environment.items() if key.startswith(("PG", "TIDELINE_"))}
        self.net.start(name, *words)
        if words[0] == "coordinator":
            self.ready(name, Path(words[words.index("--home") + 1]))

    def coordinator(self, *more: str, name: str = "coordinator", home: str = "/srv/tideline") -> None:
        """The command that was there before the chapter begins."""
        Path(self.spelt(home)).mkdir(mode=0o700, exist_ok=True)
        tls = "--tls-cert /srv/tls/coordinator.pem --tls-key /srv/tls/coordinator.key"
        self.start(f"tideline coordinator --home {home} --host 0.0.0.0 {tls}", name, more=more)

    def again(self, name: str = "coordinator", home: str = "/srv/tideline") -> None:
        """Start it again with the command that it had."""
        self.net.again(name)
        if "coordinator" in name:
            self.ready(name, Path(self.spelt(home)))

    def stop(self, name: str = "coordinator") -> None:
        process = self.net.running[name]
        process.terminate()
        assert process.wait(30) == 0, self.logs()

    def ready(self, name: str, home: Path) -> None:
        said, pid = home / "coordinator.json", self.net.running[name].pid
        self.net.until(lambda: said.exists() and json.loads(said.read_text())["pid"] == pid, f"the {name} to open its ports")

    def client(self, home: str = "/srv/tideline", ca: str | None = "/srv/tls/ca.pem") -> Client:
        """The HTTP API of whoever serves from a home."""
        return Client.of(Endpoint(home=Path(self.spelt(home)), ca=None if ca is None else Path(self.spelt(ca))))

    def agent(self, name: str, *more: str) -> None:
        """Invite a site, and start its agent, which is stopped and started again with the same command."""
        token = self.shell(f"tideline invite --name {name} --json")
        given = ("--token", json.loads(token[token.index("{") :])["token"], "--name", name, "--role", ROSTER[name])
        words = ("tideline", "agent", *given, "--data", f"/srv/data/{name}", "--home", f"/srv/agents/{name}")
        self.start(shlex.join(words), name, more=more)
        self.heard(name, "enrolled")

    def agents(self, *more: str) -> None:
        for name in ROSTER:
            self.agent(name, *more)

    def heard(self, name: str, words: str, times: int = 1) -> None:
        self.net.until(lambda: self.net.log(name).count(words) >= times, f"{name} to say {words!r}")

    def begin(self, client: Client, **more: Any) -> str:
        """A run on real digits, once it is under way."""
        run = str(client.post("/runs", EXPERIMENT | more)["run"])
        self.past(client, run, 1)
        return run

    def past(self, client: Client, run: str, cursor: int) -> None:
        self.net.until(lambda: self.result(client, run)["cursor"] > cursor, f"run {run} to come past {cursor}")

    def result(self, client: Client, run: str) -> dict[str, Any]:
        """A run as it is; while nobody answers, nothing has happened."""
        with suppress(Unreachable):
            return dict(client.get(f"/runs/{run}"))
        return {"cursor": -1, "status": "unknown"}

    def under_way(self, client: Client, run: str) -> bool:
        return self.result(client, run)["status"] == "running"

    def ended(self, client: Client, run: str) -> dict[str, Any]:
        """A run that is over, or has stalled."""
        found: dict[str, Any] = {}

        def over() -> bool:
            found.update(self.result(client, run))
            return found["status"] in ("completed", "failed", "cancelled", "stalled")

        self.net.until(over, f"run {run} to end")
        return found

    def completed(self, client: Client, run: str, digest: str) -> None:
        """Wait until a run has completed, in the bytes of this digest."""
        result = self.ended(client, run)
        assert (result["status"], result["state_digest"]) == ("completed", digest), result["cause"]

    def logs(self) -> str:
        return "\n".join(f"--- {log.stem}\n{log.read_text(errors='replace')[-1500:]}" for log in self.folder.glob("*.log"))


def blocks_of(chapter: str) -> list[str]:
    return chapters()[chapter]


@contextmanager
def opened(folder: Path, data: Path, database: str | None = None) -> Iterator[Book]:
    """A book for the time of the block."""
    net = Net(folder, database=database)
    with commands(folder) as first:
        try:
            made = Book(folder, net, first, data)
            yield made
            test = os.environ["PYTEST_CURRENT_TEST"].rpartition("::")[2].partition(" ")[0]
            assert {block for block, by in PLAYED.items() if by == test} <= made.played, "it says that it plays more"
        finally:
            net.stop()
