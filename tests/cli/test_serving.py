"""A coordinator and agents as processes, by their commands alone, and how often their logs say one thing."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.cli.world import json_of, refusal_of, tide, tide_process
from tideline.cli.serving import AGENT_OPTIONS, agent_command, agent_settings, host_name, read_labels, read_seconds
from tideline.cli.throttle import LEFT_OUT, Throttle
from tideline.core.errors import ConfigRefused
from tideline.core.tokens import Token, Trust
from tideline.engine.coordinator.idempotency import Identity

pytestmark = pytest.mark.processes
LIMIT = 120.0  # seconds; a loaded machine takes ten to start a process


@contextlib.contextmanager
def serving(log: Path, *args: object) -> Iterator[subprocess.Popen[bytes]]:
    """A command that serves; it is interrupted at the end and must end well."""
    with log.open("wb") as out:
        command = [sys.executable, "-m", "tideline", *map(str, args)]
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, "TIDELINE_LOG_JSON": "1"})
        try:
            yield process
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()


def test_a_federation_by_its_commands(tmp_path: Path, data: dict[str, Path]) -> None:
    """Coordinator, invitation, agents, run and export: what the manual says, on this machine."""
    home, started = tmp_path / "home", time.monotonic()
    with serving(tmp_path / "c.log", "coordinator", "--home", home, "--grpc-port", 0, "--http-port", 0):
        while not (home / "coordinator.json").exists():
            assert time.monotonic() - started < LIMIT, (tmp_path / "c.log").read_text()
            time.sleep(0.05)
        with contextlib.ExitStack() as agents:
            for name, role in (("anna", "source"), ("bert", "target")):
                made = json_of(tide("invite", "--name", name, "--home", home, "--json"))
                words = [{"DIR": data[name], "source": role}.get(word, word) for word in made["command"].split()]
                agents.enter_context(serving(tmp_path / f"{name}.log", *words[1:], "--home", tmp_path / name, "--device", "cpu"))
            path = tmp_path / "e.yaml"
            path.write_text("method: fedavg\npreset: tiny\nworld: {model: mlp}\nroster:\n  anna: source\n  bert: target\n")
            ended = tide_process("run", "start", path, "--watch", "--home", home, "--json", limit=120)
            assert ended.returncode == 0, ended.stderr
            result = json.loads(ended.stdout)
            assert "score 2: 2 replies, accuracy " in ended.stderr
            out = tmp_path / "state.safetensors"
            told = json_of(tide("run", "export", result["run"], "--out", out, "--home", home, "--json"))
            assert told["state_digest"] == result["state_digest"] and out.exists()
    lines = [json.loads(line) for line in (tmp_path / "c.log").read_text().splitlines()]
    assert {"coordinator_ready", "coordinator_stopping"} <= {line["event"] for line in lines}
    assert all({"level", "timestamp"} <= line.keys() for line in lines)


def test_an_agent_without_a_coordinator_gives_up(tmp_path: Path) -> None:
    """After --wait seconds an agent whose coordinator does not answer ends with code 3 and a sentence."""
    args = ["--coordinator", "127.0.0.1:1", "--data", tmp_path, "--role", "peer", "--token", "t", "--name", "x"]
    ended = tide_process("agent", *args, "--home", tmp_path / "home", "--wait", 0)
    assert ended.returncode == 3, ended.stderr
    assert "Error: " in ended.stderr and "Traceback" not in ended.stderr


def test_a_token_file_that_cannot_be_read(tmp_path: Path) -> None:
    args = ["--data", tmp_path, "--role", "peer", "--name", "x", "--home", tmp_path / "home", "--token-file", tmp_path / "token"]
    for spoilt in (False, True):
        if spoilt:
            (tmp_path / "token").write_bytes(b"\xff\xfe")
        ended = refusal_of(tide("agent", *args))
        assert "--token-file is" in ended and "tideline invite --out FILE" in ended


def test_words_of_an_invitation() -> None:
    """Labels and lifetimes as people write them, and the agent's command for each sort of address."""
    assert read_labels("") == {} and read_labels("site=a, gpu=1") == {"site": "a", "gpu": "1"}
    assert [read_seconds(t) for t in ("90s", "30m", "1h", "2d", "45", "1.5h")] == [90, 1800, 3600, 172800, 45, 5400]
    secret = Identity().token
    here, far = ("127.0.0.1:7800",), ("far.example:7800",)
    assert agent_command("a", Token(secret, here).text).endswith("--role source")
    assert agent_command("a", Token(secret, far).text).endswith(" --insecure")
    assert agent_command("a", Token(secret, far, Trust.SYSTEM).text).endswith("--role source")
    assert agent_command("a", Token(secret, (), Trust.SYSTEM).text).endswith(" --coordinator HOST:PORT")


def test_the_hosts_name_can_name_a_client() -> None:
    from tideline.engine.coordinator.run_service import check_client_name

    check_client_name(host_name(), empty=False)


def test_how_many_threads_read_rows_at_a_site(tmp_path: Path) -> None:
    options = {option.name: None if option.default is option.empty else option.default for option in AGENT_OPTIONS}
    options |= {"data": tmp_path, "role": ["source"], "name": "anna", "token": ""}
    for workers in (None, 0, 1, 64):
        assert agent_settings({**options, "workers": workers}).workers == workers
    for workers in (-1, 65):
        with pytest.raises(ConfigRefused, match="workers"):
            agent_settings({**options, "workers": workers})


def test_lines_of_one_cause_are_bounded_and_counted() -> None:
    reported: queue.Queue[tuple[str, int]] = queue.Queue()
    throttle = Throttle(lambda cause, count: reported.put((cause, count)), most=3, seconds=0.5)
    assert [throttle.admits("a") for _ in range(5)] == [True] * 3 + [False] * 2
    assert throttle.admits("b")
    assert reported.get(timeout=60) == ("a", 2)
    assert throttle.admits("a") and reported.empty()


def test_only_what_is_serious_is_bounded() -> None:
    throttle = Throttle(lambda cause, count: None, most=1, seconds=600)
    for _ in range(3):
        assert throttle(None, "info", {"event": "x"}) == {"event": "x"}
        assert throttle(None, "warning", {"event": LEFT_OUT}) == {"event": LEFT_OUT}
    throttle(None, "warning", {"event": "x"})
    with pytest.raises(structlog.DropEvent):
        throttle(None, "error", {"event": "x"})


def test_what_libraries_log_is_bounded_too() -> None:
    throttle = Throttle(lambda cause, count: None, most=1, seconds=600)
    record = logging.LogRecord("asyncio", logging.ERROR, "", 0, "socket.accept() out of system resource", (), None)
    other = logging.LogRecord("grpc", logging.ERROR, "", 0, "socket.accept() out of system resource", (), None)
    assert [throttle.filter(record), throttle.filter(record), throttle.filter(other)] == [True, False, True]
