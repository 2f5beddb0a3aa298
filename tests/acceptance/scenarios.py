"""Faults that a user will meet, each on real processes: how long until the run goes on, what is read meanwhile, the same bytes?

python -m tests.acceptance.scenarios [--lease SECONDS] [--only N]

Prints a table. Everything runs on the product's default settings but where a scenario says otherwise; --lease is that of the two
replicas. What dies is started again after two seconds, as by a supervisor. 1 if a run ends otherwise or is late.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.harness import COORDINATOR
from tests.acceptance.scene import Scene, scene
from tests.acceptance.wire import Wire
from tests.services import why_no_postgres
from tideline_server.settings import CoordinatorSettings

Play = Callable[[Scene], float]
EVERY: dict[str, tuple[str, Play]] = {}
DEFAULT_LEASE = float(CoordinatorSettings.__dataclass_fields__["lease"].default)
DEADLINE = 20.0  # seconds of a round, where a scenario needs one that ends
LONGEST_FREEZE = 5.0
REPLICAS = (COORDINATOR, "other")
HEAD = "| | fault | seconds until the run went on | what its user reads meanwhile | what the logs say | same bytes |"


@dataclass(frozen=True)
class Told:
    """What a scenario came to. wrong, late: nothing if all is as it must be."""

    number: str
    fault: str
    seconds: float
    texts: tuple[str, ...]
    warnings: tuple[str, ...]
    same: bool
    wrong: str
    late: str = ""

    def row(self) -> str:
        read, said = (" → ".join(each).replace("|", "/") or "nothing" for each in (self.texts, self.warnings))
        return f"| {self.number} | {self.fault} | {self.seconds:.1f} | {read} | {said} | {'yes' if self.same else 'NO'} |"


def scenario(number: str, fault: str) -> Callable[[Play], Play]:

    def add(play: Play) -> Play:
        EVERY[number] = (fault, play)
        return play

    return add


@scenario("1", "one of three agents is killed in mid-round, started again after 2 s")
def an_agent_of_three(there: Scene) -> float:
    """Its trainer dies with it; the step is done anew."""
    there.begin()
    return lose(there, "a")


@scenario("2", "one of two agents is killed in mid-round, started again after 2 s")
def an_agent_of_two(there: Scene) -> float:
    del there.sites["b"]
    there.begin()
    return lose(there, "a")


@scenario("3", "a trainer is killed in mid-step")
def a_trainer(there: Scene) -> float:
    there.begin()
    there.mark()
    os.kill(there.begun("b")[0], signal.SIGKILL)
    there.open_gate()
    return there.goes_on()


@scenario("4", "the only coordinator (SQLite) is killed in mid-round, started again after 2 s")
def the_coordinator(there: Scene) -> float:
    """Agents keep their replies meanwhile."""
    there.begin()
    return lose(there, COORDINATOR)


@scenario("5", "the host of the coordinator and all agents goes down and comes back after 2 s")
def the_host(there: Scene) -> float:
    """Everything is killed with its children, and started with the same commands, all at once."""
    there.begin()
    there.mark()
    there.power_off()
    there.open_gate()
    there.rest()
    for name in list(there.running):
        there.again(name)
    return there.goes_on()


@scenario("6", "one of two coordinators on Postgres is killed while it conducts the run, and stays away")
def a_replica(there: Scene) -> float:
    """The other takes the run when the lease has ended."""
    there.begin_with_replicas(*REPLICAS)
    victim = there.scheduler_loop(*REPLICAS)
    [there.door] = set(REPLICAS) - {victim}
    there.mark()
    there.kill(victim)
    there.open_gate()
    return there.goes_on()


@scenario("7", "an agent freezes with its order open, is then killed and started again after 2 s")
def a_frozen_agent(there: Scene) -> float:
    """The same order is offered again, and no step is counted twice."""
    there.begin()
    there.mark()
    there.freeze("a")
    there.open_gate()
    there.rest(min(there.lease, LONGEST_FREEZE))
    there.kill("a")
    there.rest()
    there.again("a")
    seconds = there.goes_on()
    asked = [order.attempt for order in there.orders() if order.client == "a"]
    assert set(asked) == {1}, f"the same order was offered again: {asked}"
    return seconds


@scenario("7b", f"a site's line is gone for the rest of the run; min_replies 2, deadline {DEADLINE:.0f} s")
def a_site_that_stays_away(there: Scene) -> float:
    """Rounds close at their deadlines without it; its reply, when it is back, is recorded as late and not folded."""
    there.waiting = {"min_replies": 2, "deadline": DEADLINE}
    there.wires["a"] = Wire(there.grpc)
    there.begin()
    there.mark()
    there.wires["a"].hang_up()
    there.open_gate()
    seconds = there.goes_on()
    there.over()
    there.wires["a"].mend()
    there.until(lambda: failures(there.over(), "a") == ["Late", "Silent"], "the late reply to be recorded as late")
    assert there.folded() == [["a", "b", "c"], ["b", "c"], ["b", "c"]], there.folded()
    return seconds


@scenario("7c", f"a site stays away, all are needed, deadline {DEADLINE:.0f} s; it is started again and the run resumed")
def a_run_without_quorum(there: Scene) -> float:
    """The run stalls with its cause; resume asks the site again."""
    there.waiting = {"deadline": DEADLINE}
    there.begin()
    there.mark()
    there.kill("a")
    there.open_gate()
    there.reads("stalled: Round 2 of add: 2 of 3 sites answered. a: no answer in time")
    there.again("a")
    there.client().post(f"/runs/{there.run_id}/resume", {})
    return there.goes_on()


def lose(there: Scene, name: str) -> float:
    """A process is killed and its supervisor starts it again."""
    there.mark()
    there.kill(name)
    there.open_gate()
    there.rest()
    there.again(name)
    return there.goes_on()


def failures(result: dict[str, Any], site: str) -> list[str]:
    """The kinds of a site's missing replies, in order."""
    return [each["kind"] for client in result["clients"] if client["name"] == site for each in client["failures"]]


def play(number: str, home: Path, lease: float) -> Told:
    """One scenario in a federation of its own."""
    fault, played = EVERY[number]
    with scene(home, lease) as there:
        seconds = played(there)
        result = there.over()
        same = result["state_digest"] == there.undisturbed("a" if number == "7b" else "")
        said = tuple(there.texts), tuple(there.warnings())
        return Told(number, fault, seconds, *said, same, wrong_with(result, same, there), lateness(seconds, there))


def lateness(seconds: float, there: Scene) -> str:
    """By how much it took too long, or nothing. Only a takeover has to do with the lease; the rest is held to the default."""
    limit = 2 * (there.lease if there.postgres else max(there.lease, DEFAULT_LEASE))
    return f"it took {seconds:.1f} s, and at most {limit:.1f} s are allowed" if seconds > limit else ""


def wrong_with(result: dict[str, Any], same: bool, there: Scene) -> str:
    """What is wrong with a run's end, or nothing."""
    if result["status"] != "completed":
        return f"{result['status']}: {result['cause']}"
    if not same:
        return f"other bytes: {result['state_digest']}"
    return f"counted twice: {', '.join(there.twice())}" if there.twice() else ""


def attempted(number: str, lease: float) -> Told:
    """One scenario. One that comes to no end is told of, and the next is played."""
    with tempfile.TemporaryDirectory(prefix="scene-") as folder:
        try:
            return play(number, Path(folder), lease)
        except AssertionError as error:
            return Told(number, EVERY[number][0], float("nan"), (), (), False, str(error))


def main() -> int:
    """Every scenario that was asked for; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lease", type=float, default=DEFAULT_LEASE)
    parser.add_argument("--only", choices=EVERY)
    asked = parser.parse_args()
    if why_no_postgres():
        print(why_no_postgres())
        return 1
    wrong = []
    print(HEAD + "\n|---|---|---|---|---|---|", flush=True)
    for number in [asked.only] if asked.only else EVERY:
        told = attempted(number, asked.lease)
        print(told.row(), flush=True)
        wrong += [f"{number}: {what}" for what in (told.wrong, told.late) if what]
    print("\n".join(wrong) or "\nAll as it must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
