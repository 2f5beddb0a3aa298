"""Values that sites seal for each other, over the network: the coordinator cannot read them, amid kills and new keys too."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SITES, WORLD
from tests.acceptance.harness import Net, net
from tests.engine import passing
from tideline.engine.simulation.federation import SimSite, simulate
from tideline.learning.folder import read_folder

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator and three agents that know the method."""
    with net(tmp_path_factory.mktemp("peers"), "tests.engine.passing:METHODS") as made:
        made.coordinator()
        for name, role in SITES.items():
            made.agent(name, data[name], role)
        for name in SITES:
            made.until(lambda name=name: "enrolled" in made.log(name), f"{name} to enrol")  # type: ignore[misc]
        yield made


def experiment(rounds: int = 3) -> dict[str, Any]:
    """Three sites that pass values on."""
    return {"method": "passing", "config": {"rounds": rounds}, "world": WORLD, "roster": SITES, "seed": 5}


def undisturbed(data: dict[str, Path], rounds: int = 3) -> dict[str, Any]:
    """The same in this process."""
    sites = {n: SimSite(lambda w, r, n=n: read_folder(data[n], w, r)) for n in SITES}
    return simulate(passing.METHODS, experiment(rounds), sites)


def completed(federation: Net, run: str, data: dict[str, Path], rounds: int = 3) -> dict[str, Any]:
    """The result of a run that ended in the bytes of a simulation."""
    result = federation.ended(run)
    assert result["status"] == "completed", result["cause"]
    assert result["state_digest"] == undisturbed(data, rounds)["state_digest"]
    return result


def site(federation: Net, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of a site's owner."""
    home = federation.home / f"home-{name}" / name
    home = home if home.exists() else home.parent
    command = [sys.executable, "-m", "tideline", "site", words[0], "--home", str(home), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def known(federation: Net, name: str) -> dict[str, str]:
    """The fingerprints that a site knows its peers by."""
    listed = site(federation, name, "peers", "--json")
    assert listed.returncode == 0, listed.stderr
    return {row["peer"]: row["fingerprint"] for row in json.loads(listed.stdout)}


def fingerprints(federation: Net) -> dict[str, str]:
    """Those that the coordinator tells people."""
    return {c["name"]: c["fingerprint"] for c in federation.client().get("/clients")}


def test_values_cross_the_network_sealed(peers: Net, data: dict[str, Path]) -> None:
    """The run ends in the bytes of a simulation; on the coordinator's disk lies nothing that could be read."""
    run = peers.run(experiment())
    result = completed(peers, run, data)
    here = {c["name"]: (c["bytes_up"], c["bytes_down"]) for c in undisturbed(data)["clients"]}
    assert {c["name"]: (c["bytes_up"], c["bytes_down"]) for c in result["clients"]} == here
    assert [c["audience"] for c in peers.client().get("/algorithms/passing/contract")["contract"][:1]] == [["peers"]]
    canary = struct.pack("<f", passing.CANARY + 1)
    for file in peers.folder.rglob("*"):
        assert not file.is_file() or canary not in file.read_bytes(), file
    assert known(peers, "a") == fingerprints(peers)


def test_kills_amid_the_passing(peers: Net, data: dict[str, Path]) -> None:
    """kill -9 of the coordinator and of an agent, several times: the same bytes."""
    run, rounds = peers.run(experiment(24)), 24
    for at, victim in ((3, "a"), (8, "coordinator"), (14, "b")):
        peers.until(lambda at=at: peers.result(run)["cursor"] >= at, f"round {at}")  # type: ignore[misc]
        peers.kill(victim)
        peers.again(victim)
        if victim == "coordinator":
            peers.ready()
    completed(peers, run, data, rounds)


def test_rotated_keys_are_followed(peers: Net, data: dict[str, Path]) -> None:
    """The coordinator asks for new keys; peers take them, because the old ones signed them, and say so."""
    before = fingerprints(peers)["b"]
    peers.client().post("/clients/b/rotate", {})
    peers.until(lambda: fingerprints(peers)["b"] != before, "new keys")
    completed(peers, peers.run(experiment()), data)
    assert known(peers, "a")["b"] == fingerprints(peers)["b"] != before
    assert "peer_rekeyed" in peers.log("a")


def test_changed_keys_are_refused_until_the_owner_trusts_them(peers: Net, data: dict[str, Path]) -> None:
    """A site that comes back as another: nobody seals for it, the run says why, and what to do; done, it goes on."""
    before = fingerprints(peers)["c"]
    peers.kill("c")
    peers.client().post("/clients/c/revoke", {"reason": "its machine was stolen"})
    (peers.home / "home-c").rename(peers.home / "stolen")
    peers.agent("c", data["c"], SITES["c"])
    peers.until(lambda: fingerprints(peers)["c"] != before, "c to come back with other keys")
    run = peers.run(experiment())
    result = peers.ended(run)
    assert result["status"] == "stalled"
    now = fingerprints(peers)["c"]
    assert f"c is shown with other keys ({now}) than this site knows it by ({before})" in result["cause"]
    assert f"tideline site trust c '{now}'" in result["cause"]
    wrong = site(peers, "a", "trust", "c", "not a fingerprint")
    assert wrong.returncode == 2
    assert "32 hexadecimal digits" in wrong.stderr
    stranger = site(peers, "a", "trust", "mallory", now)
    assert stranger.returncode == 2
    assert "This site has met no peer 'mallory'; it knows a, b, c" in stranger.stderr
    for name in ("a", "b"):
        told = site(peers, name, "trust", "c", now)
        assert told.returncode == 0, told.stderr
        assert before in told.stdout
    peers.client().post(f"/runs/{run}/resume", {})
    completed(peers, run, data)
    assert known(peers, "a") == fingerprints(peers)
