"""Law 5: a deployment and a simulation with the same seed ask, answer and end alike, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import SITES, WORLD
from tests.acceptance.harness import Net
from tests.laws.trace import answered, asked
from tideline.algorithms import METHODS
from tideline.engine.simulate import Federation, SimSite
from tideline.learning.folder import read_folder

pytestmark = pytest.mark.processes
VOLATILE = {"run", "reference", "seconds", "phases", "plan_length", "cursor"}


def experiment(method: str, **more: Any) -> dict[str, Any]:
    """A small run of a method on the three sites."""
    return {"method": method, "preset": "tiny", "world": WORLD, "roster": SITES, "seed": 5, "reference": {}, **more}


def simulated(data: dict[str, Path], given: dict[str, Any]) -> tuple[Federation, str, dict[str, Any]]:
    """The same experiment in this process."""
    made = Federation(METHODS, {n: SimSite(lambda w, r, n=n: read_folder(data[n], w, r)) for n in SITES})
    run = made.start(given)
    return made, run, made.run(run)


@pytest.mark.parametrize("method", [name for name, _ in METHODS])
def test_a_network_gives_the_bytes_of_a_simulation(federation: Net, data: dict[str, Path], method: str) -> None:
    """Orders, replies, seeds, final state and what people read of them are equal in one process and over gRPC."""
    run = federation.run(experiment(method))
    there = federation.ended(run)
    local, here_run, here = simulated(data, experiment(method))
    with federation.journal() as journal:
        assert asked(journal, run) == asked(local.journal, here_run)
        assert answered(journal, run) == answered(local.journal, here_run)
    assert there["status"] == here["status"] == "completed", there["cause"]
    assert there["clients"] == here["clients"]
    assert {k: v for k, v in there.items() if k not in VOLATILE} == {k: v for k, v in here.items() if k not in VOLATILE}
    assert there["state_digest"] and there["clients"][2]["source_only"] is not None


def test_a_robust_fold_gives_the_same_bytes_and_names_the_same_sites(federation: Net, data: dict[str, Path]) -> None:
    """Over the network, with marks from the database, as in one process: one of two is always beyond the lower median."""
    given = experiment("fedavg", config={"robust": "clip"})
    there, here = federation.ended(federation.run(given)), simulated(data, given)[2]
    marks = [[phase["marks"] for phase in told["phases"]] for told in (there, here)]
    assert marks[0] == marks[1] and [len(each["clipped"]) for each in marks[0] if each] == [1, 1]
    assert there["state_digest"] == here["state_digest"] and there["notes"] == here["notes"] != []


def test_two_runs_at_once_do_not_touch_each_other(federation: Net, data: dict[str, Path]) -> None:
    """Runs with other seeds on the same agents, started together, end as each does alone."""
    runs = {seed: federation.run(experiment("fedavg", seed=seed)) for seed in (11, 12, 13)}
    ends = {seed: federation.ended(run)["state_digest"] for seed, run in runs.items()}
    assert ends == {seed: simulated(data, experiment("fedavg", seed=seed))[2]["state_digest"] for seed in runs}
    assert len(set(ends.values())) == 3
