"""An agent that ignores a part of a run does not join it: agents say what they can do, where a run asks for more than all can."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.toys import ROSTER
from tests.synthetic import experiment, sites
from tideline.algorithms import METHODS
from tideline.archive.errors import Undeclared
from tideline.core.asked.abilities import ABILITIES, abilities_for
from tideline.core.asked.computing import Computing
from tideline.core.asked.private import Privacy
from tideline.core.asked.secure import SecureSums
from tideline.core.asked.wire import Format, Wire
from tideline.core.asked.world import World
from tideline.core.errors import AgentTooOld
from tideline.core.rows import Augment
from tideline.core.run import ClientId, Digest, OrderId, RunId, RunSpec
from tideline.engine.model.brief import Brief
from tideline.engine.model.joins import CAN, check_join, kept, own_abilities
from tideline.engine.model.orders import Order, Reply
from tideline.engine.ports.site import Done
from tideline.engine.simulation.federation import Federation
from tideline.engine.site.agent import Agent

# Of a brief: what each agent has always known, or a site that ignored it would be found out by a contract or a file that differs.
ALWAYS = {"method", "config", "world", "threads", "keeps", "contract", "role", "version", "peers", "scoring", "best", "base"}
ALWAYS |= {"children", "rehearses", "intent"}
PLAIN = RunSpec(id=RunId("r"), method="m", config={}, world=World(inputs=(8,)), seed=0, contract=Digest(""), keeps=False)
ASKING = {
    "augment": replace(PLAIN, augment=Augment(flip="horizontal")),
    "computing": replace(PLAIN, computing=Computing()),
    "privacy": replace(PLAIN, privacy=Privacy(rows=20, noise=1.0)),
    "secure_sums": replace(PLAIN, secure_sums=SecureSums()),
    "wire bfloat16": replace(PLAIN, wire=Wire(down=Format.BFLOAT16)),
    "wire int8": replace(PLAIN, wire=Wire(Format.INT8)),
    "wire topk": replace(PLAIN, wire=Wire(Format.TOPK, delta=True)),
}


def answer(**facts: Any) -> Reply:
    """An answer to a join."""
    return Reply(OrderId("o"), facts={"labelled": True, **facts})


def test_every_part_of_a_brief_is_known_to_all_or_an_ability() -> None:
    """A part that is added has older agents ignore it: it belongs into the table."""
    sections = {name.split()[0] for name in ABILITIES}
    assert {each.name for each in dataclasses.fields(Brief)} == ALWAYS | sections


def test_each_ability_is_asked_for_by_its_part_alone() -> None:
    assert ASKING.keys() == ABILITIES.keys() and abilities_for(PLAIN) == ()
    for name, spec in ASKING.items():
        assert abilities_for(spec) == (name,) and own_abilities(spec) == {CAN: list(ABILITIES)}
    assert own_abilities(PLAIN) == {}, "an older coordinator refuses an answer with more in it"


@pytest.mark.parametrize("name", ABILITIES)
def test_who_lacks_it_is_refused_with_what_to_do(name: str) -> None:
    """An agent from before there were abilities names none."""
    with pytest.raises(AgentTooOld, match=rf"agent \(tideline 0\.4\) lacks .*: {name}; it has none of .* Upgrade the agent to"):
        check_join(ASKING[name], answer(), "0.4")
    with pytest.raises(AgentTooOld, match=rf"The site's agent lacks .*: {name}; it has others, other"):
        check_join(ASKING[name], answer(abilities=["others", "other"]))


def test_abilities_are_told_where_they_are_asked_for_and_not_written_down() -> None:
    spec = ASKING["augment"]
    reply = answer(**own_abilities(spec))
    check_join(spec, reply)
    assert kept(reply).facts == {"labelled": True}
    with pytest.raises(Undeclared, match="holds more"):
        check_join(PLAIN, reply)


@pytest.mark.parametrize(
    "given", ["augment", [1], [["augment"]], {"augment": True}, ["augment"] * 257, 3], ids=lambda g: str(g)[:20]
)
def test_what_else_a_site_may_say_is_refused(given: Any) -> None:
    """A list of few texts, so that nothing else passes; and what is shown of it is printable."""
    with pytest.raises(Undeclared, match="names no abilities"):
        check_join(ASKING["augment"], answer(abilities=given))
    with pytest.raises(AgentTooOld) as refused:
        check_join(ASKING["augment"], answer(abilities=["\x1b[31m" + "x" * 1000]), "\x1b" * 500)
    assert "\x1b" not in str(refused.value) and len(str(refused.value)) < 600


class Older(Agent):
    """An agent from before there were abilities."""

    def guard(self, order: Order, done: Done, brief: Brief) -> Mapping[str, Any]:
        return {name: value for name, value in super().guard(order, done, brief).items() if name != CAN}


@pytest.mark.parametrize("asked", [{"computing": {}}, {"wire": "int8"}], ids=str)
def test_a_run_does_not_begin_with_an_older_agent(asked: Mapping[str, Any]) -> None:
    """Its user reads which site it is, and of which version; runs that ask for nothing have it."""
    with closing(Federation(METHODS, sites())) as on:
        old = on.agents[ClientId("bert")]
        on.agents[ClientId("bert")] = Older(old.name, old.link, old.vault, old.pool, old.owner, old.log, old.peer_keys)
        result = on.run(on.start({**experiment("fedavg", ROSTER), **asked}))
        failures = {each["name"]: [one["kind"] for one in each["failures"]] for each in result["clients"]}
        assert result["status"] == "stalled" and "bert" in result["cause"] and "Upgrade the agent" in result["cause"]
        assert failures == {"anna": [], "bert": ["AgentTooOld"], "carl": []}
        assert on.run(on.start(experiment("fedavg", ROSTER)))["status"] == "completed"
