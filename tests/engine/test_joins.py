"""A site that builds another network than the coordinator is refused when it joins, with the first difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.synthetic import experiment, sites
from tideline.algorithms import METHODS
from tideline.archive.errors import Undeclared
from tideline.core.asked.world import World, world_in
from tideline.core.errors import NetworkDiffers, Unreachable
from tideline.core.run import Digest, NetworkPrint, OrderId, RunId, RunSpec
from tideline.core.settings import plain
from tideline.engine.compute import step_runner
from tideline.engine.model.joins import check_join, kept
from tideline.engine.model.orders import Reply
from tideline.engine.model.runs import Status
from tideline.engine.simulation.federation import Federation, simulate
from tideline.nets import fingerprint, registry

WORLD = {"inputs": [8], "classes": 3, "model": {"name": "sequence", "options": {"hidden": [7]}}}
OURS = NetworkPrint(("the option width = 3", "fc.weight of 3x5 float32"), (1.0, 2.0))


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    """What the process adds, for one test."""
    registry.use(["tests.nets.foreign:NETWORKS"])
    yield
    registry.use([])


def spec(network: NetworkPrint | None) -> RunSpec:
    world = World(inputs=(8,), model="mine")
    return RunSpec(id=RunId("r"), method="m", config={}, world=world, seed=0, contract=Digest(""), keeps=False, network=network)


def answer(**facts: Any) -> Reply:
    return Reply(OrderId("o"), facts=facts)


DIFFERENT = {
    "it has the option width = 4 where the coordinator has the option width = 3": replace(
        OURS, lines=("the option width = 4", OURS.lines[1])
    ),
    "it has nothing where the coordinator has fc.weight of 3x5 float32": replace(OURS, lines=OURS.lines[:1]),
    "it has fc.bias of 3 float32 where the coordinator has nothing": replace(OURS, lines=(*OURS.lines, "fc.bias of 3 float32")),
    "with the same weights it gives 2.1 where the coordinator has 2": replace(OURS, outputs=(1.0, 2.1)),
    "it gives 0 finite outputs where the coordinator has 2": replace(OURS, outputs=()),
}


@pytest.mark.parametrize("said", DIFFERENT)
def test_the_first_difference_is_named(said: str) -> None:
    with pytest.raises(NetworkDiffers, match=said):
        check_join(spec(OURS), answer(labelled=True, network=plain(DIFFERENT[said])))


def test_a_site_s_line_is_shown_as_far_as_there_is_room() -> None:
    """It is written down, and shown to users: no megabyte, and nothing that a database or a terminal minds."""
    long = replace(OURS, lines=("x\0\x1b[31m" + "y" * 10**6,))
    with pytest.raises(NetworkDiffers) as refused:
        check_join(spec(OURS), answer(labelled=True, network=plain(long)))
    assert len(str(refused.value)) < 600 and str(refused.value).isprintable()


def test_rounding_of_another_processor_is_no_difference() -> None:
    reply = answer(labelled=True, network=plain(replace(OURS, outputs=(1.0015, 2.0))))
    check_join(spec(OURS), reply)
    assert kept(reply).facts == {"labelled": True}, "what was compared is not written down"


@pytest.mark.parametrize(
    ("network", "facts", "error"),
    [
        (OURS, {"labelled": True}, NetworkDiffers),
        (OURS, {"labelled": True, "network": 3}, NetworkDiffers),
        (OURS, {"labelled": True, "network": {"lines": 3}}, Undeclared),
        (OURS, {"labelled": True, "network": {"outputs": ["x"]}}, Undeclared),
        (OURS, {"network": plain(OURS)}, Undeclared),
        (None, {"labelled": True, "network": plain(OURS)}, Undeclared),
        (None, {"labelled": 1}, Undeclared),
    ],
)
def test_an_answer_that_tells_something_else_is_refused(
    network: NetworkPrint | None, facts: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        check_join(spec(network), answer(**facts))


def test_a_built_in_network_is_not_compared() -> None:
    assert fingerprint.print_of(world_in({"inputs": [8], "classes": 3, "model": "mlp"})) is None


@pytest.mark.parametrize("default", [torch.relu, object(), [object()], Path("/home/me")])
def test_a_default_that_no_file_can_say_is_told_by_its_type(default: object) -> None:
    """Its words have an address, which differs in each process, or something of this machine."""

    def build(world: World, act: object = default) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, world.classes))

    with registry.beside({"acting": build}):
        made = fingerprint.print_of(World(inputs=(8,), classes=3, model="acting"))
    assert made is not None and made.lines[0] == f"the option act = a {type(default).__name__}"


def test_a_print_is_the_same_each_time_and_shows_the_options() -> None:
    fingerprint.known_print.cache_clear()
    one = fingerprint.print_of(world_in(WORLD))
    fingerprint.known_print.cache_clear()
    other = fingerprint.print_of(world_in({**WORLD, "model": {"name": "sequence", "options": {"hidden": [7], "act": "tanh"}}}))
    assert one is not None and other is not None
    assert one.lines[:2] == ("the option act = 'relu'", "the option hidden = (7,)")
    assert "features.1.weight of 7x8 float32" in one.lines and one.outputs and one.outputs != other.outputs


def test_a_run_ends_where_a_site_has_another_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The site's own answer is refused, with the sentence as the run's cause."""
    honest: Callable[[World], NetworkPrint | None] = fingerprint.print_of

    def other(world: World) -> NetworkPrint | None:
        found = honest(world)
        return found and replace(found, lines=("the option hidden = (9,)", *found.lines[1:]))

    monkeypatch.setattr(step_runner, "print_of", other)
    given = experiment("fedavg", dict.fromkeys(("anna", "bert"), "source"), world=WORLD)
    result = simulate(METHODS, given, sites(("anna", "bert")))
    assert result["status"] != "completed" and "builds another sequence than the coordinator" in str(result)


def test_a_site_without_the_network_says_how_it_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(world: World) -> NetworkPrint | None:
        registry.use([])
        return fingerprint.print_of(world)

    monkeypatch.setattr(step_runner, "print_of", lacking)
    result = simulate(METHODS, experiment("fedavg", {"anna": "source"}, world=WORLD), sites(("anna",)))
    assert result["status"] != "completed" and "--networks MODULE:NAME" in str(result)


# A coordinator that lacks the code of a run that has begun leaves it alone, and ends it not.
SEQUENCE_WORLD = {"inputs": [8], "classes": 3, "model": "sequence"}


def test_a_network_that_the_operator_forgot() -> None:
    """The run goes on, to the same end, once it is there again."""
    on, other = Federation(METHODS, sites()), Federation(METHODS, sites())
    given = {**experiment("fedavg", {"anna": "source", "bert": "source"}), "world": SEQUENCE_WORLD}
    end = other.run(other.start(given))["state_digest"]
    run = on.start(given)
    for agent in on.agents.values():
        for order in on.agent_service.orders(agent.name):
            agent.handle(order)
    registry.use([])
    with pytest.raises(Unreachable, match=r"cannot go on here: world\.model is 'sequence'") as away:
        on.scheduler.turn(run)
    assert "--networks" in away.value.todo and on.run_service.find(run).status in (Status.WAITING, Status.RUNNING)
    registry.use(["tests.nets.foreign:NETWORKS"])
    assert on.run(run)["state_digest"] == end
