"""Krum over a network: five agents, the bytes of a simulation, and four are too few."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.conftest import WORLD, write_blobs
from tests.acceptance.harness import net
from tideline.algorithms import METHODS
from tideline.core.errors import RosterRefused
from tideline.engine.simulation.federation import SimSite, simulate
from tideline.learning.formats.folder import read_folder

pytestmark = [pytest.mark.processes, pytest.mark.nightly(job="journeys")]
NAMES = ("a", "b", "c", "d", "e")
CONFIG = {"robust": "krum", "byzantine": 1}


def test_krum_chooses_the_same_sites_in_every_round(tmp_path: Path) -> None:
    """The same digest and marks over gRPC and in one process, where the coordinator is killed between the rounds too; an
    experiment with four sites is refused at its start, with rule and numbers."""
    data = {name: write_blobs(tmp_path / "data" / name, seed) for seed, name in enumerate(NAMES)}
    given = {"method": "fedavg", "preset": "tiny", "world": WORLD, "roster": dict.fromkeys(NAMES, "source"), "seed": 5}
    given |= {"config": CONFIG}
    with net(tmp_path) as federation:
        federation.coordinator()
        for name in NAMES:
            federation.agent(name, data[name])
        run = federation.run(given)
        federation.until(lambda: len(federation.result(run)["phases"]) > 1, "the first round")
        federation.restart("coordinator")
        there = federation.ended(run)
        with pytest.raises(RosterRefused, match="krum with byzantine: 1 needs the models of 5 sites; 4 of the roster can train"):
            federation.run(given | {"roster": dict.fromkeys(NAMES[:4], "source")})
    here = simulate(METHODS, given, {n: SimSite(lambda w, r, n=n: read_folder(data[n], w, r)) for n in NAMES})
    marks = [[phase["marks"] for phase in told["phases"] if phase["name"] == "train"] for told in (there, here)]
    assert marks[0] == marks[1] and [len(each["chosen"]) for each in marks[0]] == [1, 1]
    assert [len(each["left out"]) for each in marks[0]] == [4, 4]
    assert there["state_digest"] == here["state_digest"] and "robust: krum" in there["notes"][0]
