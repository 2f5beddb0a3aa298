"""docs/exit-codes: a page for each code, and every example run, with the text and the code that the page prints."""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from typer.testing import CliRunner

from tests.cli.world import COMMAND, Coordinator
from tests.docs.manual import DOCS, blocks, name_of, section, tables, text_of, ticked
from tests.logs import own_log
from tideline.cli import guard
from tideline.cli.app import app
from tideline.engine.audit.log import AuditEvent, Tip, chained, line_of
from tideline.learning.datasets import digits

FOLDER = DOCS / "exit-codes"
LIST = FOLDER / "README.md"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path != LIST)
# What the shell makes of a process that a signal ended, with the shell's word or the terminal's echo.
SIGNALS = {"^C": signal.SIGINT, "Killed": signal.SIGKILL, "Terminated": signal.SIGTERM}
OURS = {name: value for name, value in vars(guard).items() if name.isupper() and isinstance(value, int)}
CANCELLED, STALLED, OPEN, OTHER_OPEN = "5f0c1a9be2d4", "367370fee45a", "9be2d45f0c1a", "81c2d0f4a6b3"
EXAMPLE = re.compile(r"^\$ (tideline .+)\n((?:(?!\$ ).*\n)*)\$ echo \$(?:\?|\{PIPESTATUS\[0\]\})\n(\d+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A command as a page prints it, what it says, and its code."""

    page: str
    line: str
    said: str
    code: int


def examples(page: Path) -> list[Example]:
    """A page's examples. Raises where a block has anything else in it."""
    found = []
    for block in blocks(page, "console"):
        assert EXAMPLE.sub("", block) == "", f"{name_of(page)} has an example that cannot be read"
        found += [Example(page.stem, line, said, int(code)) for line, said, code in EXAMPLE.findall(block)]
    return found


ALL = [example for page in PAGES for example in examples(page)]


class Noting:
    """A door that notes when somebody follows a run."""

    def __init__(self, inner: ASGIApp) -> None:
        self.inner, self.followed = inner, threading.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/events") and b"follow=false" not in scope["query_string"]:
            self.followed.set()
        await self.inner(scope, receive, send)


@dataclass
class Place:
    """A machine like the one of the pages, and how its words differ from theirs."""

    home: Path
    door: Noting
    words: dict[str, str]

    def here(self, text: str) -> str:
        """A text of the pages as it is on this machine."""
        for theirs, ours in self.words.items():
            text = text.replace(theirs, ours)
        return text


class Stranger(http.server.BaseHTTPRequestHandler):
    """Somebody else's web server."""

    def log_message(self, *_: object) -> None: ...


@contextlib.contextmanager
def stranger() -> Iterator[str]:
    """Somebody else at a port; the port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield str(server.server_port)
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A coordinator in its usual home, with runs that were cancelled, have stalled and are open; and a stranger."""
    machine = tmp_path_factory.mktemp("machine")
    sites = {name: machine / name for name in ("anna", "bert")}
    for name, domain in (("anna", "mnist"), ("bert", "usps")):
        digits.write_site(sites[name], domain, rows=40)
    (machine / "clinic").mkdir()
    first, second = chained(Tip(), [AuditEvent("log_begun", 1.0), AuditEvent("approved", 2.0, "alice", "carl")])
    (machine / "log.jsonl").write_text("".join(f"{line_of(each)}\n" for each in (first, replace(second, by="bob"))))
    home = machine / ".tideline" / "coordinator"
    home.parent.mkdir()
    there = Coordinator(home, sites)
    there.app = door = Noting(there.app)  # type: ignore[assignment]
    with there.open(), stranger() as other, (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        at = there.federation
        cancelled, opened, another = there.start(), there.start(), there.start()
        at.run_service.cancel(cancelled)
        stalled = there.start(roster={"anna": "source", "carl": "target"})
        at.run(stalled)
        ids = {CANCELLED: str(cancelled), STALLED: str(stalled), OPEN: str(opened), OTHER_OPEN: str(another)}
        ports = {"7880": there.url.rpartition(":")[2], "8000": other}
        yield Place(machine, door, {**ids, **ports, "/home/anna": str(machine)})


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Nobody's own settings reach the commands."""
    for name in [name for name in os.environ if name.startswith("TIDELINE_")]:
        monkeypatch.delenv(name)
    if "place" in request.fixturenames:
        machine = request.getfixturevalue("place").home
        monkeypatch.setenv("HOME", str(machine))
        monkeypatch.chdir(machine)


def agrees(said: str, printed: str) -> None:
    """What a command said is what the page prints; three dots stand for a library's words, which change with its version."""
    pattern = "\n".join(re.escape(line).replace(re.escape("..."), ".+") for line in printed.strip().splitlines())
    lines = "\n".join(line.rstrip() for line in said.strip().splitlines())
    assert re.fullmatch(pattern, lines), f"said:\n{lines}\n\nprinted:\n{printed}"


def in_a_process(words: list[str], out: int | None = subprocess.PIPE) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "tideline", *words]
    return subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)


def told_by(process: subprocess.Popen[str]) -> tuple[str, int]:
    """What a process says and its code, as a shell tells it."""
    out, err = process.communicate(timeout=60)
    code = process.returncode
    return (err or "") + (out or ""), code if code >= 0 else 128 - code


def is_plain(example: Example) -> bool:
    """Whether an example can be run in this process."""
    words = shlex.split(example.line)
    return (
        words[1] not in ("coordinator", "agent") and not {"|", ">"} & set(words) and not set(SIGNALS) & set(example.said.split())
    )


def test_commands(place: Place, subtests: pytest.Subtests) -> None:
    """What talks to a coordinator, or needs none."""
    for example in filter(is_plain, ALL):
        with subtests.test(f"{example.page}: {example.line}"):
            words = shlex.split(place.here(example.line))[1:]
            ended = CliRunner().invoke(app, words, prog_name="tideline", catch_exceptions=False)
            assert ended.exit_code == example.code == int(example.page)
            agrees(ended.output, place.here(example.said))


SERVING = [e for e in ALL if e.line.split()[1] in ("coordinator", "agent") and "--token wrong" not in e.line]
ALONE = [next(e for e in SERVING if e.line.split()[1] == command) for command in ("coordinator", "agent")]


def told_here(words: list[str]) -> tuple[str, int]:
    """What a command says in this process, and its code."""
    with own_log():
        ended = CliRunner().invoke(app, words, prog_name="tideline", catch_exceptions=False)
    return ended.stderr + ended.stdout, ended.exit_code


def test_what_serves(place: Place, subtests: pytest.Subtests) -> None:
    """A coordinator and an agent that cannot begin; one of each in a process of its own."""
    for example in SERVING:
        with subtests.test(f"{example.page}: {example.line}"):
            words = shlex.split(place.here(example.line))[1:]
            said, code = told_by(in_a_process(words)) if example in ALONE else told_here(words)
            assert code == example.code == int(example.page), said
            agrees(said, place.here(example.said))


def test_signals(place: Place, subtests: pytest.Subtests) -> None:
    """A command that is interrupted, told to end or killed."""
    for example in (e for e in ALL if set(SIGNALS) & set(e.said.split())):
        with subtests.test(example.page):
            word, *lines = example.said.splitlines()
            place.door.followed.clear()
            process = in_a_process(shlex.split(place.here(example.line))[1:])
            assert place.door.followed.wait(60)
            process.send_signal(SIGNALS[word])
            said, code = told_by(process)
            assert code == example.code == int(example.page), said
            agrees(said, "\n".join(lines))


@pytest.mark.parametrize("example", [e for e in ALL if {"|", ">"} & set(e.line.split())], ids=str)
def test_where_output_goes(place: Place, example: Example) -> None:
    """A reader that has gone, and a disk that is full."""
    line, mark, _ = place.here(example.line).partition(" | " if " | " in example.line else " > ")
    if mark == " | ":
        reading, out = os.pipe()
        os.close(reading)
    else:
        out = os.open("/dev/full", os.O_WRONLY)
    process = in_a_process(shlex.split(line)[1:], out)
    os.close(out)
    said, code = told_by(process)
    assert code == example.code == int(example.page), said
    agrees(said, place.here(example.said))


@pytest.mark.processes
def test_a_token_that_nobody_made(place: Place, tmp_path: Path) -> None:
    """The one example that needs a whole coordinator."""
    (example,) = (e for e in ALL if "--token wrong" in e.line)
    home, log = tmp_path / "coordinator", tmp_path / "log"
    with log.open("w") as err:
        args = ["coordinator", "--home", str(home), "--grpc-port", "0", "--http-port", "0"]
        coordinator = subprocess.Popen([sys.executable, "-m", "tideline", *args], stdout=err, stderr=err)
    try:
        until = time.monotonic() + 60
        while not (home / "coordinator.json").exists():
            assert time.monotonic() < until and coordinator.poll() is None, log.read_text()
            time.sleep(0.05)
        door = json.loads((home / "coordinator.json").read_text())["grpc"]
        said, code = told_by(in_a_process(shlex.split(example.line.replace("127.0.0.1:7800", door))[1:]))
        assert code == example.code
        agrees(said, example.said)
        coordinator.send_signal(signal.SIGTERM)
        assert coordinator.wait(60) == guard.DONE
    finally:
        coordinator.kill()
        coordinator.wait()


def test_every_code_has_a_page() -> None:
    """The list, the pages and the table of the command line are the codes of the guard, and two that are the system's."""
    rows = tables(text_of(LIST))[0]
    told = {row[1].strip("`"): int(re.sub(r"\[(\d+)\]\(\1\.md\)", r"\1", row[0])) for row in rows}
    assert told == OURS | {s.name: 128 + s for s in (signal.SIGKILL, signal.SIGTERM)}
    assert sorted(path.stem for path in PAGES) == sorted(map(str, told.values()))
    short = re.findall(r"\[(\d+)\]\(exit-codes/\1\.md\)", section(DOCS / "cli.md", "Exit codes"))
    assert sorted(map(int, short)) == sorted(told.values())
    assert all(row[2] and row[3] for row in rows)


def test_every_page_is_whole() -> None:
    """The code is its title; it says what happened, what is kept and what to do; it has an example."""
    for page in PAGES:
        text = text_of(page)
        assert text.startswith(f"# {page.stem}: ") and examples(page)
        assert re.findall(r"^\*\*([^*]+)\.\*\*", text, flags=re.MULTILINE) == ["What happened", "What is kept", "What to do"]


def leaves_of(group: Any, name: str) -> Iterator[str]:
    """Each command below a group, in full."""
    for below, command in group.commands.items():
        whole = f"{name} {below}"
        yield from leaves_of(command, whole) if hasattr(command, "commands") else (whole,)


def test_every_command_has_its_codes() -> None:
    """The second table has each command, and only codes that have a page."""
    rows = tables(text_of(LIST))[1]
    told = {phrase.split(" --")[0] for row in rows for phrase in ticked(row[0])}
    leaves = set(leaves_of(COMMAND, "tideline"))
    assert told == leaves
    codes = {code for row in rows for code in re.findall(r"\d+", row[1])}
    assert codes <= {path.stem for path in PAGES}
