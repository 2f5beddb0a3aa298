"""Whoever runs the steps of simulated sites, the bytes are the same; a process that dies is replaced, and its steps run again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.engine import passing
from tests.laws.case import WIRES
from tests.laws.laws import EVERYTHING
from tests.synthetic import NAMES, Opener, Rows, experiment, sites
from tideline.algorithms import METHODS
from tideline.core.algorithm import Methods
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused
from tideline.core.run import Role
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.engine.simulation.pools import InlinePool, ProcessPool, cores

pytestmark = pytest.mark.processes
JOBS = min(2, cores())
ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
processes = partial(ProcessPool, jobs=JOBS)


def federation(methods: Methods, given: Mapping[str, SimSite], open_pool: Callable[..., Any]) -> closing[Federation]:
    """Open a federation whose pool is closed at the end of the block."""
    return closing(Federation(methods, given, open_pool=open_pool))


def ended(methods: Methods, given: Mapping[str, Any], there: Mapping[str, SimSite], open_pool: Callable[..., Any]) -> Any:
    """What a run comes to: its result without times, and what each site remembers."""
    with federation(methods, there, open_pool) as on:
        run = on.start(given)
        result = on.run(run)
        heads = {name: agent.vault.head(run) for name, agent in on.agents.items()}
        memories = {name: head and (head.memory, head.reply) for name, head in heads.items()}
        return result["status"], result["state_digest"], result["clients"], memories


@pytest.mark.nightly(job="services")
@pytest.mark.parametrize("method", ["feddadil", "fedavg", "fedwca"])
def test_processes_give_the_bytes_of_this_one(method: str) -> None:
    """Of methods whose sites remember, and of one without memories. Some parts go through pipes, and some through files."""
    given = experiment(method, ROSTER)
    inline = ended(METHODS, given, sites(), InlinePool)
    assert inline[0] == "completed" and ended(METHODS, given, sites(), partial(processes, large=3000)) == inline


@pytest.mark.nightly(job="services")
@pytest.mark.parametrize("large", [1, 1 << 30])
def test_they_do_so_where_weights_are_packed(large: int) -> None:
    """What rounding left out of one message goes to the process that makes the next, by a file or a pipe."""
    given = experiment("fedavg", ROSTER, wire=WIRES["topk"])
    assert ended(METHODS, given, sites(), partial(processes, large=large)) == ended(METHODS, given, sites(), InlinePool)


@pytest.mark.nightly(job="services")
def test_large_parts_go_through_files() -> None:
    """Parts above a size are mapped by all processes, and none is left there in the end."""
    given = experiment("fedavg", ROSTER)
    inline = ended(METHODS, given, sites(), InlinePool)
    with federation(METHODS, sites(), partial(processes, large=1)) as on:
        for _ in range(20):  # two sites that make the same bytes at the same time do not lose them: rarely in one run
            assert on.run(on.start(given))["state_digest"] == inline[1]
            assert not list(on.pool._shared.digests())  # type: ignore[attr-defined]


@pytest.mark.nightly(job="services")
def test_values_for_peers() -> None:
    """A step that fetches what its peers sealed reads it in another process, too."""
    pass_values(processes)


def pass_values(open_pool: Callable[..., Any]) -> None:
    """Play sites that seal values for each other, in this process and in the pool's: both runs end alike."""
    there = {name: SimSite(Opener(i, 0), EVERYTHING) for i, name in enumerate(NAMES[:3])}
    given = {"method": "passing", "config": {"rounds": 2}, "world": {"inputs": [8], "classes": 3, "model": "mlp"}}
    given |= {"roster": dict.fromkeys(NAMES[:3], "source"), "seed": 3}
    results = [ended(passing.METHODS, given, there, pool)[:2] for pool in (InlinePool, open_pool)]
    assert results[0] == results[1] and results[0][0] == "completed"


@dataclass(frozen=True)
class Deadly:
    """Data whose process is killed when it is opened, so many times."""

    domain: int
    marks: str
    times: int

    def __call__(self, world: World, role: Role) -> Rows:
        died = len(list(Path(self.marks).iterdir()))
        if died < self.times:
            Path(self.marks, str(died)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Opener(self.domain, 0)(world, role)


def deadly(folder: Path, times: int) -> dict[str, SimSite]:
    return sites() | {"bert": SimSite(Deadly(1, str(folder), times))}


@pytest.mark.nightly(job="services")
def test_a_killed_process_is_replaced_and_its_steps_run_again(tmp_path: Path) -> None:
    """The bytes are those of this process alone, of sites that remember, too."""
    given = experiment("feddadil", ROSTER)
    inline = ended(METHODS, given, sites(), InlinePool)
    assert inline[0] == "completed"
    assert ended(METHODS, given, deadly(tmp_path, 1), partial(processes, large=3000)) == inline
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.nightly(job="services")
def test_a_step_that_kills_its_process_again_and_again_fails(tmp_path: Path) -> None:
    """The site's order fails with a reason, and the run says so; nothing waits for ever."""
    with federation(METHODS, deadly(tmp_path, 99), processes) as on:
        result = on.run(on.start(experiment("fedavg", ROSTER, waiting={"deadline": 60.0})))
    assert result["status"] == "stalled"
    assert "bert: StepFailed" in result["cause"] or "The process of this step died 3 times" in result["cause"], result["cause"]


@pytest.mark.nightly(job="services")
def test_an_error_of_a_step_comes_back_as_it_is() -> None:
    """A site whose data cannot be opened says why, in the words that it would have said here."""
    there = sites() | {"bert": SimSite(refusing)}
    given = experiment("fedavg", ROSTER)
    causes = []
    for pool in (InlinePool, processes):
        with federation(METHODS, there, pool) as on:
            causes.append(on.run(on.start(given))["cause"])
    assert causes[0] == causes[1] and "there is nothing here" in causes[0]


def refusing(world: World, role: Role) -> Rows:
    raise ConfigRefused("there is nothing here", "Bring data", path="data")


def test_data_that_no_other_process_can_open_is_refused() -> None:
    there = {name: SimSite(lambda world, role: Opener(0, 0)(world, role)) for name in ROSTER}
    with pytest.raises(ConfigRefused, match="cannot be opened by another process") as refused:
        Federation(METHODS, there, open_pool=processes)
    assert refused.value.context["path"] == "pool"


@pytest.mark.parametrize("jobs", [0, 10_000])
def test_more_processes_than_cores_are_refused(jobs: int) -> None:
    with pytest.raises(ConfigRefused, match=f"jobs is {jobs}; this machine has") as refused:
        Federation(METHODS, sites(), open_pool=partial(ProcessPool, jobs=jobs))
    assert refused.value.context["path"] == "jobs"


def test_a_round_that_closes_early_begins_no_more_than_it_needs() -> None:
    """Where a run does not wait for all, one site answers after the other: nobody works whose answer would be late."""
    begun: list[str] = []
    given = experiment("fedavg", ROSTER) | {"waiting": {"target_replies": 1}}
    with federation(METHODS, sites(), InlinePool) as on:
        begin = on.pool.begin
        on.pool.begin = lambda order, job, parts: (begun.append(job.client), begin(order, job, parts))[1]  # type: ignore[method-assign,func-returns-value]
        result = on.run(on.start(given), lambda event: None)
    assert result["status"] == "completed" and len(begun) == sum(phase["replies"] for phase in result["phases"])


@pytest.mark.nightly(job="services")
def test_an_early_round_has_the_same_bytes_whoever_runs_its_steps() -> None:
    """Whose answers count follows from the order in which sites are asked, not from who is fast."""
    given = experiment("feddadil", ROSTER) | {"waiting": {"target_replies": 2, "min_replies": 1}}
    inline = ended(METHODS, given, sites(), InlinePool)
    assert ended(METHODS, given, sites(), processes) == inline
