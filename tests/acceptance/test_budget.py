"""A site's budget of epsilon with real agents: refused beyond what is left, through kills, and after an old home was put back."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import WORLD
from tests.acceptance.failpoints import FAILING
from tests.acceptance.harness import Net, net
from tests.cli.world import tide_process
from tideline.core.asked.private import Charge
from tideline.engine.epsilon.renyi import renyi_epsilon
from tideline_agent.home.ledger import entries

AT_NIGHT = pytest.mark.nightly(job="journeys")

pytestmark = pytest.mark.processes
PRIVACY = {"rows": 40, "noise": 2.0, "delta": 1e-3, "rate": 0.25}
WHOLE = (Charge(2.0, 0.25, 8), Charge(8.0, 1.0, 2))  # two rounds of four steps and a scoring
RUN: dict[str, Any] = {
    "method": "fedavg",
    "preset": "tiny",
    "world": {**WORLD, "normalise": "none"},
    "roster": {"a": "source"},
    "privacy": PRIVACY,
}
CHARGED = "agent rename ledger_head.remember<ledger._append<ledger.account after"


@pytest.fixture
def federation(tmp_path: Path, data: dict[str, Path]) -> Iterator[Net]:
    """A coordinator, and an agent whose owner allows one such run, and not two."""
    with net(tmp_path) as made:
        (tmp_path / "gun").mkdir()
        made.more |= {"TIDELINE_GUN": str(tmp_path / "gun"), "PYTHONPATH": str(FAILING)}
        made.coordinator()
        most = 1.2 * renyi_epsilon(WHOLE, 1e-3)
        made.agent("a", data["a"], "source", *made.policy(f"[privacy]\nepsilon = {most}\ndelta = 1e-3\nrequire = ['all']\n"))
        made.heard("a", "enrolled", 1)
        yield made


def stalled(federation: Net, run: str) -> str:
    federation.until(lambda: federation.result(run)["status"] == "stalled", "the run to stall")
    return str(federation.result(run)["cause"])


def kinds(federation: Net) -> Counter[str]:
    return Counter(each.kind for each in entries(federation.home / "home-a"))


def test_a_second_run_is_refused_with_what_is_left(federation: Net) -> None:
    """Before any work; and a run that is not private at all, with the methods that can be."""
    federation.completed(federation.run(RUN))
    (budget,) = federation.owner("a", "budget")["budgets"]
    assert 0 < budget["spent"] <= renyi_epsilon(WHOLE, 1e-3) and budget["reserved"] == 0 < budget["left"] < budget["spent"]
    orders = kinds(federation)["order"]
    second = federation.run(RUN)
    assert "is left, and the run asks for" in stalled(federation, second)
    (failure,) = federation.result(second)["clients"][0]["failures"]
    assert failure["kind"] == "BudgetExceeded" and kinds(federation)["order"] == orders
    shown = tide_process("site", "budget", "--home", str(federation.home / "home-a"))
    assert shown.returncode == 0 and "spent alone" in shown.stdout and "which the agent obeys" in " ".join(shown.stdout.split())
    plain = federation.run({name: value for name, value in RUN.items() if name != "privacy"})
    assert "only if they protect rows" in stalled(federation, plain)
    assert "fedavg, fedprox" in str(federation.result(plain)["cause"]) and kinds(federation)["order"] == orders


def test_a_run_that_is_cancelled_gives_back_what_it_reserved(federation: Net) -> None:
    waits = federation.run({**RUN, "roster": {"a": "source", "nobody": "source"}})
    federation.until(lambda: kinds(federation)["reserved"] == 1, "the run to be reserved")
    assert "is left" in stalled(federation, federation.run(RUN))
    federation.client().post(f"/runs/{waits}/cancel", {})
    federation.until(lambda: kinds(federation)["released"] == 1, "the agent to let go")
    federation.completed(federation.run(RUN))


@pytest.mark.parametrize("later", [pytest.param(0, marks=AT_NIGHT), 1, pytest.param(2, marks=AT_NIGHT)])
def test_a_death_between_charge_and_answer(federation: Net, later: int) -> None:
    """After the reservation, a training's charge, a scoring's: the run completes, and each is charged once."""
    (federation.home / "gun" / "armed").write_text(f"{CHARGED} {later}")
    run = federation.run(RUN)
    federation.until(lambda: federation.running["a"].poll() == -signal.SIGKILL, "the agent to die")
    assert kinds(federation)["reserved"] + kinds(federation)["charged"] == later + 1
    federation.again("a")
    federation.completed(run)
    assert (kinds(federation)["reserved"], kinds(federation)["charged"]) == (1, 4)


def test_a_home_that_was_lost(federation: Net, data: dict[str, Path]) -> None:
    """The site enrols under its name with an empty one: no budget begins by that, until its owner says what was spent."""
    federation.completed(federation.run(RUN))
    federation.kill("a")
    federation.client().post("/clients/a/revoke", {"reason": "its home was lost"})
    (federation.home / "home-a").rename(federation.home / "lost")
    (policy,) = federation.home.glob("policy-*.toml")
    federation.agent("a", data["a"], "source", "--policy", str(policy))
    federation.heard("a", "ledger_differs", 1)
    assert "lacks entries that the coordinator was told of" in stalled(federation, federation.run(RUN))
    federation.kill("a")
    for command in (("ledger", "accept", "--yes"), ("spent", "0", "0", "--yes")):
        ended = tide_process("site", *command, "--home", str(federation.home / "home-a"))
        assert ended.returncode == 0, ended.stderr
    federation.again("a")
    federation.completed(federation.run(RUN))


def test_an_old_home_that_is_put_back(federation: Net) -> None:
    """Spends nothing, until the newest is back; or its owner goes on without it, and says what was spent."""
    home, backup = federation.home / "home-a", federation.home / "backup"
    federation.kill("a")
    shutil.copytree(home, backup, symlinks=True)
    federation.again("a")
    federation.completed(federation.run(RUN))
    federation.kill("a")
    home.rename(federation.home / "newest")
    shutil.copytree(backup, home, symlinks=True)
    federation.again("a")
    federation.heard("a", "session_doubled", 1)
    (row,) = federation.client().get("/clients")
    approved = tide_process("clients", "approve", "a", "--session", row["doubles"][-1], "--home", str(federation.folder))
    assert approved.returncode == 0, approved.stderr
    federation.heard("a", "ledger_differs", 1)
    assert "lacks entries that the coordinator was told of" in stalled(federation, federation.run(RUN))
    assert federation.owner("a", "budget")["behind"]
    federation.kill("a")
    for command in (("ledger", "accept", "--yes"), ("spent", "0.01", "1e-6", "--yes")):
        ended = tide_process("site", *command, "--home", str(home))
        assert ended.returncode == 0, ended.stderr
        federation.again("a")
        if command[0] == "ledger":
            assert "nobody knows what private runs have spent" in stalled(federation, federation.run(RUN))
            federation.kill("a")
    federation.completed(federation.run(RUN))
    (budget,) = federation.owner("a", "budget")["budgets"]
    assert budget["stated"] == 0.01 < budget["spent"] and not budget["lost"]
