"""A source's model is for the targets of its links alone; and what becomes of links whose source does not give it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.algorithms.stlf.test_method import MAIN, PAIRS, ROSTER, asked, federation, memory, orders_of, played, silent_in, state
from tests.laws.stage import CountingPool, Stage, registered
from tests.synthetic import experiment
from tideline.algorithms.stlf import client, stlf
from tideline.algorithms.stlf.messages import Assignment, Hypothesis, Mine, Offered, Span, State, Targets
from tideline.archive import sealing
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.errors import StepFailed
from tideline.core.handle import Handle, check_due
from tideline.core.run import ClientId
from tideline.core.step import Outcome, Site, Step
from tideline.engine.compute.step_runner import StepRunner
from tideline.engine.model.orders import Envelope
from tideline.engine.model.runs import RunRow, Status
from tideline.engine.peers.sealing import raw
from tideline.numerics.aggregation.averaging import weighted_sum

QUORUM = {"min_replies": 1, "deadline": 60.0}
# Sources that do not reach each other. Where a rate in bit/s is given, a link costs much; at 1 bit/s more than any other would.
SOURCES = ("anna", "bert", "emil")
THREE = dict.fromkeys(SOURCES, "source") | {"carl": "target", "dora": "target", "finn": "target"}
NEAR = {"anna": {"carl": 1e3, "dora": 1.0}, "bert": {"carl": 1.0, "dora": 1e3, "finn": 1.0}, "emil": {"finn": 1.0}}
RATES = {name: {other: 0.0 for other in SOURCES if other != name} | NEAR[name] for name in SOURCES}


def offered(stage: Stage) -> list[Envelope]:
    """The sealed models."""
    sealed = [e for vault in stage.vaults.values() for head in vault.past for e in head.sealed]
    return [envelope for envelope in sealed if envelope.handle.phase == "offer"]


def lost_amid(roster: dict[str, str], *lost: tuple[str, int], **config: Any) -> tuple[Stage, Any, RunRow]:
    """A run in which sources do not give their models."""
    stage = federation(roster)
    run = stage.start(experiment("stlf", roster, config=PAIRS | config, waiting=QUORUM))
    return stage, run, stage.play(run, silent_in(stage, run, "offer", *lost))


def marks(stage: Stage, run: Any) -> list[dict[str, tuple[str, ...]]]:
    """Of each round of `offer`."""
    return [dict(r.marks) for r in stage.journal.rounds(run) if r.phase == "offer"]


def checked_transfer(stage: Stage, run: Any) -> State:
    """The tables tell those links whose models were handed out, and each target has the mean that they say."""
    end = state(stage, run)
    main = next(plan for plan in end.plans if plan.rule == MAIN)
    names = [f"{a} to {b}" for i, a in enumerate(end.names) for j, b in enumerate(end.names) if main.alpha[i, j] > 0]
    tables = next(r.tables for r in stage.journal.rounds(run) if r.phase == "transfer")
    assert list(tables["links"].rows) == names
    assert tables["devices"].rows == end.names
    for j, name in enumerate(end.names):
        shares = {end.names[i]: float(a) for i, a in enumerate(main.alpha[:, j]) if a > 0}
        handed = decode(Assignment, asked(stage, run, "transfer")[name, 1].files[0][0], stage.parts, LAX).sources
        assert {source for source, share in handed.items() if MAIN in share.weight} == set(shares)
        mine = memory(stage, run, name)
        expected = weighted_sum((a, memory(stage, run, s).h) for s, a in shares.items()) if shares else mine.h
        for key, w in expected.items():
            torch.testing.assert_close(mine.models[MAIN][key], w)
    return end


def test_a_model_is_sealed_to_its_targets_alone() -> None:
    """Under any rule; who is read by nobody seals nothing, and nothing is sealed before there are links."""
    stage, run = played(compare=["random_alpha", "random_psi"])
    end = state(stage, run)
    goes = torch.stack([plan.alpha for plan in end.plans]).amax(0) > 0
    wanted = {n: {to for to, given in zip(end.names, row, strict=True) if given} for n, row in zip(end.names, goes, strict=True)}
    assert {e.handle.holder: set(e.keys) for e in offered(stage)} == {n: to for n, to in wanted.items() if to}
    assert {source: set(to) for source, to in end.readers.items()} == {n: to for n, to in wanted.items() if to}
    phases = {e.handle.phase for vault in stage.vaults.values() for head in vault.past for e in head.sealed}
    assert phases == {"separate", "offer"}
    assert [p["name"] for p in stage.result(run)["phases"]].count("offer") == 1


def test_the_keys_of_others_open_no_model() -> None:
    """Neither those of a device that is no target of it, nor any public one; a target's do."""
    stage, _ = played(federation(THREE), THREE, rates=RATES)
    public = [key for ring in stage.peer_keys_of.values() for key in raw(ring.own().public)]
    found = offered(stage)
    assert found
    for envelope in found:
        assert set(envelope.keys) < set(stage.peer_keys_of) - {envelope.handle.holder}
        for reader, box in envelope.keys.items():
            able = {
                name for name, ring in stage.peer_keys_of.items() if sealing.open_key(bytes.fromhex(box), ring.own().receive[0])
            }
            assert able == {reader}
            assert not any(sealing.open_key(bytes.fromhex(box), key) for key in public)


@pytest.mark.nightly(job="numbers")
def test_weights_are_shared_among_the_sources_that_are_left() -> None:
    """Where a target has others; nobody has to be asked again."""
    stage, run, row = lost_amid(THREE, ("bert", 1), weights="power", compare=["fedavg_alpha"], phi_energy=1e6)
    assert row.status is Status.COMPLETED, row.cause
    assert marks(stage, run) == [{"left out": ("bert",), "linked anew": ("carl", "dora", "finn")}]
    end = checked_transfer(stage, run)
    assert (end.lost, end.names) == (("bert",), ("anna", "carl", "dora", "emil", "finn"))
    assert all(torch.allclose(plan.alpha.sum(0), plan.psi.double()) for plan in end.plans)
    assert end.plans[0].links == 6


def test_a_target_whose_only_source_is_lost_gets_another() -> None:
    """The cheapest that is left is asked for its model, once more if it gave it already."""
    stage, run, row = lost_amid(ROSTER, ("bert", 1), phi_energy=1e3, rates={"anna": {"dora": 1.0}, "bert": {"carl": 1.0}})
    assert row.status is Status.COMPLETED, row.cause
    assert marks(stage, run) == [{"left out": ("bert",), "linked anew": ("dora",)}, {}]
    end = checked_transfer(stage, run)
    assert end.names == ("anna", "carl", "dora")
    assert sorted(map(sorted, (e.keys for e in offered(stage)))) == [["carl"], ["carl", "dora"]]
    scores = {c["name"]: c.get("accuracy") for c in stage.result(run)["clients"]}
    assert scores["dora"] is not None


def test_a_target_without_labels_may_end_without_a_model() -> None:
    """Where the one that was to stand in is lost too: it is named, it is asked nothing more, and the others go on."""
    stage, run, row = lost_amid(THREE, ("emil", 1), ("bert", 2), phi_energy=1e3, rates=RATES)
    assert row.status is Status.COMPLETED, row.cause
    assert marks(stage, run) == [
        {"left out": ("emil",), "linked anew": ("carl", "dora")},
        {"left out": ("bert",), "without a model": ("dora",)},
    ]
    end = checked_transfer(stage, run)
    assert end.names == ("anna", "carl", "finn")
    assert {name for name, _ in asked(stage, run, "transfer")} == set(end.names)


@pytest.mark.nightly(job="numbers")
def test_a_target_that_no_other_can_reach_is_left_without_a_model() -> None:
    """At once: nobody is asked again for it."""
    more = {"anna": {"finn": 0.0}, "bert": {"finn": 0.0}, "emil": {"carl": 1.0}}
    rates = {name: RATES[name] | more[name] for name in SOURCES}
    stage, run, row = lost_amid(THREE, ("emil", 1), phi_energy=1e3, rates=rates)
    assert row.status is Status.COMPLETED, row.cause
    assert marks(stage, run)[0]["without a model"] == ("finn",)
    end = checked_transfer(stage, run)
    assert "finn" not in end.names
    scores = {c["name"]: c.get("accuracy") for c in stage.result(run)["clients"]}
    assert scores["finn"] is None and scores["carl"] is not None


def test_without_an_answer_by_the_only_source_the_run_waits() -> None:
    """It stalls with its name, and goes on to the end that it would have had."""
    quiet, first = played()
    stage = federation()
    run = stage.start(experiment("stlf", ROSTER, config=PAIRS))
    row = stage.play(run, silent_in(stage, run, "offer", ("anna", 1), ("bert", 1)))
    assert row.status is Status.STALLED
    assert "Round 1 of offer" in row.cause
    stage.run_service.resume(run)
    assert stage.play(run).state_digest == quiet.row(first).state_digest


def lost_early(*lost: str) -> RunRow:
    """A run in which devices are silent from the first exchange of the tournament on."""
    stage = federation()
    run = stage.start(experiment("stlf", ROSTER, config=PAIRS, waiting=QUORUM))
    return stage.play(run, silent_in(stage, run, "separate", *((name, 1) for name in lost)))


@pytest.mark.nightly(job="numbers")
def test_who_was_lost_is_named_where_nothing_can_be_linked() -> None:
    """One device is left, or none with labels: the cause says who is missing, and what to do."""
    row = lost_early("bert", "carl", "dora")
    assert row.status is Status.FAILED
    assert "A link wants two devices, and anna is left; bert, carl, dora gave no answer, or none of use" in row.cause
    assert "Begin again when bert, carl, dora can answer in time" in row.cause
    row = lost_early("anna", "bert")
    assert row.status is Status.FAILED
    assert "No device with labels is left, only carl, dora; anna, bert gave no answer, or none of use" in row.cause


def other_network(order: Targets, m: Mine, site: Site) -> Outcome[Offered, Mine]:
    """What a device of another version might seal."""
    return Outcome(Offered(Handle.of(Hypothesis({"w": torch.zeros(3)}), map(ClientId, order.names))), m)


def test_a_model_of_another_network_is_refused() -> None:
    """By its target, in words: nobody between could have looked."""
    stage = federation({"anna": "source", "bert": "target"})
    step = Step("offer", other_network, Targets, Mine, Offered)
    methods = registered(
        replace(stlf, plan=lambda c: tuple(replace(p, step=step) if p.name == "offer" else p for p in stlf.plan(c)))
    )
    name = ClientId("anna")
    step_runner = StepRunner(methods, stage.vaults[name].parts, stage.sites[name].open_site_data)
    stage.agents[name].pool = CountingPool(step_runner, stage.jobs)
    run = stage.start(experiment("stlf", {"anna": "source", "bert": "target"}, preset="tiny"))
    row = stage.play(run)
    assert row.status is Status.STALLED
    assert "bert: The model of anna is of another network. Install the same version at both sites" in row.cause


def test_who_has_no_labels_has_nothing_to_offer() -> None:
    """An order that asks for it all the same is refused."""
    mine = Mine(torch.zeros(0, dtype=torch.int64), {}, {}, {}, {}, Span())
    with pytest.raises(StepFailed, match="no labels, so no model to offer"):
        client.offer.run(Targets(("anna",)), mine, None)


def test_a_model_of_another_exchange_is_refused() -> None:
    """Also one that is signed: a half of a classifier is no model, and another's is not this source's."""
    fine: Handle[Any] = Handle("d", 1, ClientId("anna"), "offer", 2)
    check_due(fine, "anna", "offer", 1, 2)
    for odd in (replace(fine, phase="separate"), replace(fine, holder=ClientId("bert")), replace(fine, round=3)):
        with pytest.raises(StepFailed, match="where that of anna, of round 1 or 2 of offer, is due"):
            check_due(odd, "anna", "offer", 1, 2)


def test_an_order_asks_for_the_run_s_sites_alone() -> None:
    """A source seals to no name that the order's peers have not."""
    stage = federation()
    run = stage.start(experiment("stlf", ROSTER, config=PAIRS))
    order = orders_of(stage, run, "offer", 1)[0]
    targets = decode(Targets, order.files[0][0], stage.parts, LAX).names
    peers = {name: reported for name, reported in order.brief["peers"].items() if name != targets[0]}
    stage.agents[stage.journal.order(order.id).client].handle(replace(order, brief={**order.brief, "peers": peers}))  # type: ignore[union-attr]
    failure = stage.journal.order(order.id).failure  # type: ignore[union-attr]
    assert failure is not None and f"is for {targets[0]}, who is no peer of this run" in failure.what
