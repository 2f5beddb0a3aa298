"""Values that sites seal for each other, over the network: the coordinator cannot read them, amid kills and new keys too."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SITES, WORLD
from tests.acceptance.harness import Net
from tests.engine import passing
from tideline.engine.simulation.federation import SimSite, simulate
from tideline.learning.formats.folder import read_folder

AT_NIGHT = pytest.mark.nightly(job="journeys")

pytestmark = pytest.mark.processes


def experiment(rounds: int = 3) -> dict[str, Any]:
    return {"method": "passing", "config": {"rounds": rounds}, "world": WORLD, "roster": SITES, "seed": 5}


def undisturbed(data: dict[str, Path], rounds: int = 3) -> dict[str, Any]:
    sites = {n: SimSite(lambda w, r, n=n: read_folder(data[n], w, r)) for n in SITES}
    return simulate(passing.METHODS, experiment(rounds), sites)


def completed(federation: Net, run: str, data: dict[str, Path], rounds: int = 3) -> dict[str, Any]:
    """The result of a run that ended in the bytes of a simulation."""
    result = federation.completed(run)
    assert result["state_digest"] == undisturbed(data, rounds)["state_digest"]
    return result


def site(federation: Net, name: str, *words: str) -> subprocess.CompletedProcess[str]:
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
    return {c["name"]: c["fingerprint"] for c in federation.client().get("/clients") if c["name"] in SITES}


def test_values_cross_the_network_sealed(federation: Net, data: dict[str, Path]) -> None:
    """The run ends in the bytes of a simulation; on the coordinator's disk lies nothing that could be read."""
    run = federation.run(experiment())
    result = completed(federation, run, data)
    here = {c["name"]: (c["bytes_up"], c["bytes_down"]) for c in undisturbed(data)["clients"]}
    assert {c["name"]: (c["bytes_up"], c["bytes_down"]) for c in result["clients"]} == here
    assert [c["audience"] for c in federation.client().get("/algorithms/passing/contract")["contract"][:1]] == [["peers"]]
    canary = struct.pack("<f", passing.CANARY + 1)
    for file in federation.folder.rglob("*"):
        assert not file.is_file() or canary not in file.read_bytes(), file
    assert known(federation, "a") == fingerprints(federation)


@pytest.mark.parametrize(
    ("rounds", "kills"),
    [(12, ((2, "a"), (6, "coordinator"))), pytest.param(24, ((3, "a"), (8, "coordinator"), (14, "b")), marks=AT_NIGHT)],
    ids=["two", "three"],
)
def test_kills_amid_the_passing(federation: Net, data: dict[str, Path], rounds: int, kills: tuple[tuple[int, str], ...]) -> None:
    """kill -9 of an agent and of the coordinator, one after the other: the same bytes."""
    run = federation.run(experiment(rounds))
    for at, victim in kills:
        federation.until(lambda at=at: federation.result(run)["cursor"] >= at, f"round {at}")  # type: ignore[misc]
        federation.restart(victim)
    completed(federation, run, data, rounds)


def test_rotated_keys_are_followed(federation: Net, data: dict[str, Path]) -> None:
    """The coordinator asks for new keys; peers take them, because the old ones signed them, and say so."""
    before = fingerprints(federation)["b"]
    federation.client().post("/clients/b/rotate", {})
    federation.until(lambda: fingerprints(federation)["b"] != before, "new keys")
    completed(federation, federation.run(experiment()), data)
    assert known(federation, "a")["b"] == fingerprints(federation)["b"] != before
    assert "peer_rekeyed" in federation.log("a")


def test_changed_keys_are_refused_until_the_owner_trusts_them(federation: Net, data: dict[str, Path]) -> None:
    """A site that comes back as another: nobody seals for it, the run says why, and what to do; done, it goes on."""
    before = fingerprints(federation)["c"]
    federation.kill("c")
    federation.client().post("/clients/c/revoke", {"reason": "its machine was stolen"})
    (federation.home / "home-c").rename(federation.home / "stolen")
    federation.agent("c", data["c"], SITES["c"])
    federation.until(lambda: fingerprints(federation)["c"] != before, "c to come back with other keys")
    run = federation.run(experiment())
    result = federation.ended(run)
    assert result["status"] == "stalled"
    now = fingerprints(federation)["c"]
    assert f"c is shown with other keys ({now}) than this site knows it by ({before})" in result["cause"]
    assert f"tideline site trust c '{now}'" in result["cause"]
    wrong = site(federation, "a", "trust", "c", "not a fingerprint")
    assert wrong.returncode == 2
    assert "32 hexadecimal digits" in wrong.stderr
    stranger = site(federation, "a", "trust", "mallory", now)
    assert stranger.returncode == 2
    assert "This site has met no peer 'mallory'; it knows a, b, c" in stranger.stderr
    for name in ("a", "b"):
        told = site(federation, name, "trust", "c", now)
        assert told.returncode == 0, told.stderr
        assert before in told.stdout
    federation.client().post(f"/runs/{run}/resume", {})
    completed(federation, run, data)
    assert known(federation, "a") == fingerprints(federation)
