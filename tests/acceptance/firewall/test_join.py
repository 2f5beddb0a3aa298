"""`tideline join`, and the doctor where there are two ways."""

from __future__ import annotations

import configparser
import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.acceptance.conftest import write_blobs
from tests.acceptance.firewall.proxy import connecting
from tests.acceptance.harness import Net
from tests.acceptance.test_bulk_lane import METHODS
from tests.cli.world import tide, tide_process
from tests.server.agents_http.port import http_port_of
from tests.services import free_port
from tideline.core.run import Role
from tideline.core.tokens import Token
from tideline.engine.simulation.federation import Federation
from tideline_agent.doctor import Finding, State, checkup
from tideline_agent.home.identity import recall
from tideline_agent.settings import AgentSettings
from tideline_agent.unit import quoted, unit_of

ANALYZE = shutil.which("systemd-analyze")


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Federation, int]]:
    with http_port_of() as made:
        yield made


@pytest.fixture
def site(opened: tuple[Federation, int], tmp_path: Path) -> AgentSettings:
    """An agent of the test's own, with a good token."""
    federation, port = opened
    token = federation.run_service.invite(tmp_path.name, {}, 60.0)
    data = write_blobs(tmp_path / "data", 1)
    address = f"http://127.0.0.1:{port}"
    return AgentSettings(address, data, (Role.SOURCE,), tmp_path.name, token, tmp_path / "home", device="cpu")


def joined(site: AgentSettings, *more: str) -> list[str]:
    where = ("--home", str(site.home), "--name", site.name, "--data", str(site.data), "--role", "source", "--device", "cpu")
    return ["join", *where, *more, "--", site.coordinator, site.token]  # a secret without its prefix may begin with a dash


def test_a_service(site: AgentSettings, tmp_path: Path) -> None:
    """It enrols, and writes a unit without the token; the home knows the rest."""
    file = tmp_path / "tideline-agent.service"
    said = tide(*joined(site, "--service", str(file)))
    assert said.exit_code == 0 and "systemctl enable --now tideline-agent.service" in said.output
    text = file.read_text()
    assert site.token not in text and site.coordinator not in text
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    service = unit["Service"]
    assert (service["Restart"], service["NoNewPrivileges"], service["ProtectSystem"]) == ("always", "yes", "strict")
    assert service["ReadWritePaths"] == str(site.folder) and service["CapabilityBoundingSet"] == ""
    command = shlex.split(service["ExecStart"])
    assert command[1:4] == ["-m", "tideline", "agent"] and "--coordinator" not in command
    assert command[command.index("--data") + 1] == str(site.data)
    memo = recall(site.folder)
    assert memo is not None and memo.addresses == (site.coordinator,)


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed: nobody has checked the unit as systemd reads it")
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_systemd_takes_the_unit(tmp_path: Path, device: str) -> None:
    site = AgentSettings("127.0.0.1:9", tmp_path, (Role.SOURCE,), "hospital-a", home=tmp_path / "its home", device=device)
    file = tmp_path / "tideline-agent.service"
    file.write_text(unit_of(site))
    found = subprocess.run([str(ANALYZE), "verify", str(file)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_a_unit_that_is_printed(site: AgentSettings) -> None:
    said = tide(*joined(site, "--service", "-"))
    assert said.exit_code == 0 and said.stdout.startswith("# Written by") and "[Install]" in said.stdout


def test_what_a_unit_cannot_hold(site: AgentSettings) -> None:
    """A password is refused before the token is used up; words are quoted as systemd reads them."""
    said = tide(*joined(site, "--service", "-", "--proxy", "http://ann:secret@proxy:3128"))
    assert said.exit_code == 2 and "any user of this machine" in said.output and "secret" not in said.output
    assert not site.folder.exists()
    assert [quoted(each) for each in ("plain", "two words", "50%", "$HOME", 'a"b')] == [
        *("plain", '"two words"', "50%%", "$$HOME", '"a\\"b"'),
    ]
    assert "PrivateDevices" in unit_of(site) and "PrivateDevices" not in unit_of(replace(site, device="cuda"))


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [
        ("ftp://coordinator", "t", "is no address"),
        ("https://", "t", "is no address"),
        ("https://user:word@coordinator", "t", "is no address"),
        ("coordinator", "t", "is no address"),
        ("https://coordinator?x=1", "t", "is no address"),
        ("http://coordinator.example.org", "t", "without TLS would send the token"),
        ("tide1_abc", "https://coordinator", "The token stands where the address should"),
        ("https://127.0.0.1:1", "tide1_abc", "The token is not whole"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, url: str, token: str, words: str) -> None:
    data = write_blobs(tmp_path / "data", 1)
    said = tide("join", url, token, "--data", data, "--role", "source", "--home", tmp_path / "home", "--wait", "0")
    assert said.exit_code == 2 and words in said.output, said.output


def test_a_token_that_nobody_made(site: AgentSettings) -> None:
    said = tide(*joined(replace(site, token="x" * 32), "--service", "-"))
    assert said.exit_code == 2 and "The token is not known here" in said.output


@pytest.mark.processes
def test_joining_starts_the_agent(tmp_path: Path) -> None:
    """One command: enrolled, and at work; started again it needs no token."""
    made = Net(tmp_path, METHODS)
    data = write_blobs(tmp_path / "data", 1)
    try:
        made.coordinator("--agents-over-http")
        token = made.client().post("/invites", {"name": "ann", "ttl_seconds": 600})["token"]
        home = ("--home", str(tmp_path / "home"), "--data", str(data), "--role", "source", "--name", "ann", "--device", "cpu")
        made.start("ann", "join", f"http://127.0.0.1:{made.http}", token, *home)
        made.until(lambda: "enrolled" in made.log("ann"), "the agent to enrol")
        made.leave("ann")
        made.start("again", "agent", *home)
        made.until(lambda: "enrolled" in made.log("again"), "the agent to come back")
    finally:
        made.stop()


def findings(settings: AgentSettings) -> dict[str, Finding]:
    return {each.check: each for each in checkup(settings)}


def test_the_doctor_knows_https(site: AgentSettings) -> None:
    found = findings(site)
    assert {each.state for name, each in found.items() if name not in ("parts",)} == {State.OK}
    assert found["way"].found.startswith(f"HTTP at {site.coordinator} works; gRPC at 127.0.0.1:7800 does not work")
    assert found["tls"].found.endswith("is called in the clear")


def test_the_doctor_says_what_to_set(site: AgentSettings) -> None:
    """Of two ways the one that works, when the one that is set does not."""
    closed = f"127.0.0.1:{free_port()}"
    found = findings(replace(site, coordinator=f"{closed},{site.coordinator}"))
    assert found["line"].state is State.WARNING or found["line"].state is State.OK
    assert f"gRPC at {closed} does not work" in found["way"].found and found["way"].state is State.OK
    found = findings(replace(site, coordinator=closed))
    assert found["line"].state is State.FAILED and "one outgoing connection" in found["way"].todo


def test_the_doctor_names_the_proxy(site: AgentSettings) -> None:
    with connecting() as proxy:
        found = findings(replace(site, coordinator="https://coordinator.example.org", proxy=proxy.bare))
    assert found["name"].found == "the proxy of --proxy 127.0.0.1 is 127.0.0.1"
    assert found["line"].state is State.FAILED and "asks for a user name and a password (407)" in found["line"].found
    assert "HTTPS at https://coordinator.example.org does not work: The proxy" in found["way"].found


def test_a_token_may_name_both_ways(opened: tuple[Federation, int], site: AgentSettings) -> None:
    federation, _ = opened
    closed = f"127.0.0.1:{free_port()}"
    secret = federation.run_service.invite(f"{site.name}-2", {}, 60.0)
    token = Token(secret, (closed, site.coordinator)).text
    said = tide(
        *joined(replace(site, coordinator=f"{closed},{site.coordinator}", token=token, name=f"{site.name}-2"), "--service", "-")
    )
    assert said.exit_code == 0, said.output


def test_the_help_names_it() -> None:
    assert "join" in tide_process("--help").stdout
    assert json.loads(json.dumps(tide("join", "--help").output)).count("--service") >= 1
