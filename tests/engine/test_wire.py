"""In which numbers weights travel: from the experiment to the site, at the join, and what a site keeps of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator

from tests.laws.case import Case
from tests.laws.stage import Stage, registered
from tests.synthetic import experiment, sites
from tideline.algorithms import METHODS
from tideline.archive.checks import LAX
from tideline.archive.parts import MemoryParts
from tideline.archive.reader import decode
from tideline.archive.wire.packing import Packing
from tideline.core.algorithm import Algorithm, Methods
from tideline.core.asked.wire import NO_WIRE, Format, Scale, Wire, wire_of
from tideline.core.asked.world import World
from tideline.core.errors import AgentTooOld, ConfigRefused, Malformed
from tideline.core.phase import Phase, Plan, Replies, Turn, to_all
from tideline.core.privacy import Exposure
from tideline.core.record import Nothing, Weights, field, record
from tideline.core.run import ClientId, Digest, OrderId, Role, Roster, RunId, RunSpec
from tideline.core.settings import plain, read, setting
from tideline.core.step import Outcome, Site, step
from tideline.engine.compute.wire.sending import Unsent, sending, unsent_after
from tideline.engine.model.brief import Brief, brief_in, plain_brief
from tideline.engine.model.experiment import read_experiment
from tideline.engine.model.joins import check_join
from tideline.engine.model.orders import Order, Reply
from tideline.engine.model.runs import Status
from tideline.engine.ports.site import Head, Job
from tideline.engine.simulation.federation import Federation
from tideline.engine.site.admission import brief_in_words, facts_of, intent_digest
from tideline_agent.vault import FolderVault

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
INT8 = Wire(Format.INT8, delta=True, scale=Scale.ROW)


# From the experiment to the site


def test_it_is_read_in_a_short_form_and_a_long_one() -> None:
    """A format alone, or a mapping; `down: true` is the same format downwards."""
    asked = experiment("fedavg", ROSTER)
    assert wire_of(read_experiment(asked).wire) == NO_WIRE
    assert wire_of(read_experiment({**asked, "wire": "bfloat16"}).wire) == Wire(Format.BFLOAT16)
    long = {"format": "int8", "scale": "row", "delta": True, "down": True}
    assert wire_of(read_experiment({**asked, "wire": long}).wire) == replace(INT8, down=Format.INT8)
    assert wire_of(read_experiment({**asked, "wire": {"down": False}}).wire) == NO_WIRE


@pytest.mark.parametrize(
    ("said", "path", "words"),
    [
        ("bfloat", "wire", "did you mean bfloat16"),
        ({"format": "int4"}, "wire.format", "one of float32, bfloat16, int8, topk"),
        ({"formats": "int8"}, "wire.formats", "did you mean format"),
        ({"format": "int8", "scale": "column"}, "wire.scale", "tensor, row"),
        ({"format": "topk", "delta": True, "share": 0}, "wire.share", "at least"),
        ({"format": "topk", "delta": True, "share": 2}, "wire.share", "at most 1"),
        ({"format": "topk"}, "wire.delta", "delta: true"),
        ({"format": "topk", "delta": True, "down": True}, "wire.down", "down: bfloat16"),
        ({"delta": True}, "wire.delta", "as many bytes"),
        ({"format": "int8", "feedback": 1}, "wire.feedback", "true or false"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused_with_its_place(said: Any, path: str, words: str) -> None:
    """Before anybody is asked, with the way out."""
    with pytest.raises(ConfigRefused, match=words) as refused:
        read_experiment({**experiment("fedavg", ROSTER), "wire": said})
    assert refused.value.context["path"] == path


def order(**more: Any) -> Order:
    """An order of a run, whose brief says more."""
    with closing(Federation(METHODS, sites())) as on:
        row = on.run_service.find(on.start({**experiment("fedavg", ROSTER), **more.pop("asked", {})}))
    brief: Mapping[str, Any] = {**plain_brief(row, Role.SOURCE, "9"), **more}
    return Order(OrderId("o"), row.id, 0, "train", "train", 1, (), 1, -1, 9.0, json.loads(json.dumps(brief)))


def test_the_brief_says_it_where_there_is_something_to_say() -> None:
    """Absent it is not there, so that agents of older days read what they always read."""
    assert "wire" not in order().brief and "wire" not in order(asked={"wire": "float32"}).brief
    told = order(asked={"wire": plain(INT8)})
    assert brief_in(told).wire == INT8 and any(clause.wire for clause in brief_in(told).contract)
    assert not any("wire" in clause for clause in order().brief["contract"])  # type: ignore[union-attr]


def test_a_brief_that_no_coordinator_of_ours_says() -> None:
    """A format that this agent does not speak is refused with those that it does."""
    with pytest.raises(Malformed, match="its wire is missing or wrong"):
        brief_in(order(wire=[1]))
    with pytest.raises(ConfigRefused, match="should be one of float32, bfloat16, int8, topk"):
        brief_in(order(wire={"format": "int4"}))
    with pytest.raises(ConfigRefused, match="most numbers would be lost"):
        brief_in(order(wire={"format": "topk"}))


def test_an_owner_approves_it() -> None:
    """It is part of what the ledger says, and of the digest that an approval is of; absent it adds nothing to either."""

    def brief(wire: Wire) -> Brief:
        known = {"method": "m", "config": {}, "world": World(), "threads": 1, "keeps": False, "contract": (), "role": Role.SOURCE}
        return Brief(**known, wire=wire)  # type: ignore[arg-type]

    assert len({intent_digest(brief(each)) for each in (NO_WIRE, INT8, replace(INT8, delta=False))}) == 3
    assert intent_digest(brief(replace(NO_WIRE, feedback=False))) == intent_digest(brief(NO_WIRE))
    assert "wire" not in facts_of(brief(NO_WIRE)) and facts_of(brief(INT8))["wire"] == plain(INT8)
    words = "weights travel: format: int8, down: float32, scale: row, share: 0.01, delta: True, feedback: True"
    assert words in brief_in_words(brief(INT8))
    assert not any("weights travel" in line for line in brief_in_words(brief(NO_WIRE)))


# The join


def spec(wire: Wire) -> RunSpec:
    """A run with that wire."""
    known = {"method": "m", "config": {}, "seed": 0, "contract": Digest(""), "keeps": False}
    return RunSpec(id=RunId("r"), world=World(inputs=(8,)), wire=wire, **known)  # type: ignore[arg-type]


def answer(**facts: Any) -> Reply:
    """An answer to a join."""
    return Reply(OrderId("o"), facts={"labelled": True, **facts})


def test_a_site_that_packs_in_no_such_format_is_refused_at_its_join() -> None:
    """Formats are abilities, each of its own: a run asks for those that it uses."""
    check_join(spec(INT8), answer(abilities=["wire int8"]))
    check_join(spec(NO_WIRE), answer())
    with pytest.raises(AgentTooOld, match=r"lacks what the run asks for: wire int8; .*take out of the experiment: wire int8"):
        check_join(spec(INT8), answer())
    with pytest.raises(AgentTooOld, match=r"asks for: wire bfloat16, wire int8; it has wire topk"):
        check_join(spec(replace(INT8, down=Format.BFLOAT16)), answer(abilities=["wire topk"]))


def test_the_result_says_it() -> None:
    """With all settings; and what travelled is less."""
    with closing(Federation(METHODS, sites())) as on:
        small, plain_run = (on.run(on.start({**experiment("fedavg", ROSTER), **more})) for more in ({"wire": plain(INT8)}, {}))
    assert small["wire"] == plain(INT8) and plain_run["wire"] is None
    clause = next(each for each in small["contract"] if each["field"] == "model")
    assert clause["wire"] == "int8 with a scale for each row, as a difference to what was sent"
    ups = [sum(each["bytes_up"] for each in result["clients"]) for result in (small, plain_run)]
    assert ups[0] < ups[1]


# What a site keeps


def job(unsent: Digest | None = None) -> Job:
    """A step of a run whose weights are packed."""
    return Job(RunId("r"), ClientId("anna"), 3, 2, order_brief(), 11, None, None, unsent=unsent)


def order_brief() -> Brief:
    """Its brief."""
    return Brief("m", {}, World(), 1, False, (), Role.SOURCE, wire=INT8)


def test_what_is_not_sent_is_read_again() -> None:
    """Fields that this message has not stay as they were; a file that is gone is no error; without feedback nothing is kept."""
    parts, packing = MemoryParts(), Packing(INT8, up=True)
    first = sending(packing, job(), "train", parts, feedback=True)
    assert first is not None and first.left == {} and not first.before and unsent_after(first, parts) == ()
    first.left["train/model/w"] = torch.ones(2, 3)
    files = unsent_after(first, parts)
    second = sending(packing, job(files[0][0]), "train", parts, feedback=True)
    assert second is not None and torch.equal(second.before["train/model/w"].float(), torch.ones(2, 3))
    assert second.left is not None
    second.left["train/model/b"] = torch.zeros(2)
    kept = decode(Unsent, unsent_after(second, parts)[0][0], parts, LAX)
    assert kept.fields == ("train/model/b", "train/model/w")
    alone = sending(packing, job(files[0][0]), "train", parts, feedback=False)
    assert alone is not None and alone.left is None and not alone.before and unsent_after(alone, parts) == ()
    gone = sending(packing, job(files[0][0]), "train", MemoryParts(), feedback=True)
    assert gone is not None and not gone.before and sending(None, job(), "train", parts, feedback=True) is None


def test_a_vault_on_disk_keeps_it(tmp_path: Path) -> None:
    """With its head, and from being collected; a head from before there was any has none."""
    vault, run = FolderVault(tmp_path), RunId("r")
    files = tuple((vault.parts(run).put([text]), len(text)) for text in (b"memory", b"unsent", b"other"))
    head = Head(OrderId("o"), 1, (files[0],), (), {}, {}, unsent=(files[1],))
    vault.commit(run, head)
    assert FolderVault(tmp_path).head(run) == replace(head, asked=None)
    vault.collect(run, ())
    assert set(vault.parts(run).digests()) == {files[0][0], files[1][0]}
    old = {name: value for name, value in plain(head).items() if name != "unsent"}
    assert read(Head, old, "head").unsent == ()


def test_memory_from_an_earlier_day_brings_nothing_of_its_own() -> None:
    """A site that keeps no memory and was restored goes on; what it had left out then is not of the message before."""
    case = Case("fedavg", METHODS, wire="topk")
    stage = case.stage()
    run = stage.start(case.experiment())
    vault = stage.vaults[ClientId("anna")]
    for action in stage.actions(run):
        action()
        if len(vault.past) == 2:
            break
    vault.restore(run, vault.past[0])
    assert stage.play(run).status is Status.COMPLETED


# Methods that no one expects


@dataclass(frozen=True)
class Config:
    """Of both methods."""

    rounds: int = setting(2, low=0, doc="rounds")


@record
class Model:
    """The model, down and as state."""

    model: Weights = field(doc="a matrix")


@record
class Changed:
    """The model, up."""

    model: Weights = field("like model", Exposure.WEIGHTS, doc="a matrix")


def begin(config: Config, world: World, roster: Roster, rng: Generator) -> Model:
    """Ones."""
    return Model({"w": torch.ones(16, 16)})


@step()
def in_place(order: Model, memory: Nothing, site: Site) -> Outcome[Changed, Nothing]:
    """Train the order's own tensors, as careless methods do."""
    order.model["w"] += 1
    return Outcome(Changed({"w": order.model["w"]}), memory)


@step()
def exploded(order: Model, memory: Nothing, site: Site) -> Outcome[Changed, Nothing]:
    """One number leaves all others behind."""
    made = order.model["w"] + 1
    made[0, 0] = 1e9
    return Outcome(Changed({"w": made}), memory)


def mean(state: Model, replies: Replies[Changed], turn: Turn) -> Model:
    """The first reply: all are alike."""
    return Model({name: w.clone() for name, w in next(iter(replies.values())).model.items()})


def method(run: Any) -> Methods:
    """A registry with that method."""

    def plan(config: Config) -> Plan:
        return (Phase("train", run, ask=to_all(Model), fold=mean),) * config.rounds

    return registered(Algorithm("odd", "", "odd", Config, Model, begin, plan))


def played(run: Any, **more: Any) -> tuple[Stage, RunId]:
    """A run of it."""
    stage = Stage(method(run), sites())
    name = stage.start({**experiment("odd", dict.fromkeys(ROSTER, "source")), "preset": None, **more})
    stage.play(name)
    return stage, name


def test_differences_are_to_what_was_sent_whatever_the_step_does_to_it() -> None:
    """A step that writes to its order changes no difference: else the coordinator would add nothing."""
    stage, run = played(in_place, wire={"format": "bfloat16", "delta": True})
    state = stage.journal.rounds(run)[-1].state[0][0]
    assert torch.equal(decode(Model, state, stage.parts, LAX).model["w"], torch.full((16, 16), 3.0))


def test_a_site_notes_a_scale_that_leaves_nothing_of_the_others() -> None:
    """Users see it beside the run; it goes on."""
    with closing(Federation(method(exploded), sites())) as on:
        run = on.start({**experiment("odd", dict.fromkeys(ROSTER, "source")), "preset": None, "wire": "int8"})
        assert on.run(run)["status"] == "completed"
        noted = [event for event in on.journal.events(run) if "coarse_scale" in str(event.data)]
    assert noted and "next to nothing is left" in str(noted[0].data)
