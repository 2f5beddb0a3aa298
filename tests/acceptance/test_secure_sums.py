"""Secure sums with real agents: the bytes of the simulation, without a site that has gone, and through deaths at any moment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import WORLD
from tests.acceptance.failpoints import SECURE, SUMMING, Play, Range, die_in_run, firing_range, undisturbed
from tests.cli.world import tide_process

AT_NIGHT = pytest.mark.nightly(job="journeys")

pytestmark = pytest.mark.processes
COMMIT = "agent rename vault.commit<agent.ready<agent.work"
# Deaths around each of a site's answers (behind the join's), its notes, and the coordinator's commit of each exchange.
POINTS = [
    *((f"{COMMIT} {when}", answer) for answer in range(1, 6) for when in ("before", "after")),
    ("agent link notebook._write<notebook.note<site.advertise after", 0),
    ("agent link notebook._write<notebook.note<site.mask after", 0),
    ("agent link notebook._write<notebook.note<site.agree after", 0),
    *(("coordinator commit journal.advance " + when, exchange) for exchange in range(1, 6) for when in ("before", "after")),
]
SOON = {(f"{COMMIT} after", 3), ("agent link notebook._write<notebook.note<site.mask after", 0)}
SIX = {**dict.fromkeys("abc", "source"), **dict.fromkeys("def", "target")}
CHOOSING = Play({**SECURE.experiment, "method": "ifca_pl", "world": WORLD, "roster": SIX, "reference": None}, SIX)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    """A federation of four sites whose processes can be killed at points."""
    with firing_range(tmp_path_factory.mktemp("sums"), play=SECURE) as made:
        made.begin()
        yield made


@pytest.mark.smoke
def test_a_run_over_the_network_ends_as_its_simulation(place: Range) -> None:
    """And says what is summed, to its users and to owners; each agent knows the others by their keys."""
    result = place.run("peace")
    assert (result["status"], result["state_digest"]) == ("completed", undisturbed(place.data, SECURE)), result["cause"]
    shown = tide_process("run", "show", result["run"], "--json", "--home", str(place.federation.folder))
    assert shown.returncode == 0, shown.stderr
    clauses = [each for each in json.loads(shown.stdout)["contract"] if each["audience"] == ["sum"]]
    assert [each["field"] for each in clauses] == ["values"] and "more than two thirds" in clauses[0]["wire"]
    peers = tide_process("site", "peers", "--json", "--home", str(place.federation.home / "home-a"))
    assert peers.returncode == 0, peers.stderr
    assert set(SUMMING) <= {each["peer"] for each in json.loads(peers.stdout)}


@pytest.mark.parametrize(("point", "later"), [pytest.param(*each, marks=() if each in SOON else AT_NIGHT) for each in POINTS])
def test_a_death_between_any_two_messages(place: Range, point: str, later: int) -> None:
    """Whoever dies is started again, and the run ends in the undisturbed bytes."""
    assert die_in_run(place, point, later, undisturbed(place.data, SECURE)) == ""


def test_a_site_that_has_gone_for_good(place: Range) -> None:
    """The sum is that of the others. It is not waited for beyond the deadline of an exchange."""
    federation, patient = place.federation, {"min_replies": 3, "deadline": 20.0}
    run = federation.run({**SECURE.experiment, "name": "three", "waiting": patient, "config": {"rounds": 2}})
    federation.until(lambda: len(federation.result(run)["phases"]) > 1, "the run to be under way")
    place.over.set()
    federation.kill("d")
    try:
        federation.completed(run)
    finally:
        federation.again("d")


@pytest.mark.nightly(job="journeys")
def test_sites_that_choose_among_models_end_as_their_simulation(tmp_path: Path) -> None:
    """In blocks that nobody sees; each site has the model that it chose, and the coordinator has none of a site's own."""
    with firing_range(tmp_path, play=CHOOSING) as found:
        found.begin()
        result = found.run("choosing")
        assert (result["status"], result["state_digest"]) == ("completed", undisturbed(found.data, CHOOSING)), result["cause"]
        tables = [phase["tables"] for phase in result["phases"] if "sites of each model" in phase["tables"]]
        assert len(tables) == 2 and not any(phase["groups"] for phase in result["phases"])
        out, home = str(tmp_path / "model.safetensors"), str(found.federation.folder)
        refused = tide_process("run", "export", result["run"], "--site", "d", "--out", out, "--home", home)
        assert refused.returncode == 2 and "which the coordinator does not have" in refused.stderr
        there = ("--home", str(found.federation.home / "home-d"), "--run", result["run"])
        written = tide_process("site", "export", *there, "model", "--out", out)
        assert written.returncode == 0, written.stderr
