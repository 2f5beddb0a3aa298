"""ST-LF on a small shift: what devices tell, what the coordinator makes of it, and what targets get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.algorithms.lies import night_params
from tests.algorithms.remembered import remembered
from tests.laws.stage import Stage, hoarding_stage
from tests.synthetic import Rows, experiment, rows, sites
from tideline.algorithms import METHODS
from tideline.algorithms.averaging.messages import Model
from tideline.algorithms.stlf.messages import Assignment, Mine, Profile, Separated, State, Update
from tideline.algorithms.stlf.settings import RULES
from tideline.archive.checks import LAX, Rules
from tideline.archive.reader import decode
from tideline.core.asked.world import World
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Role
from tideline.core.step import Data
from tideline.engine.model.orders import Order
from tideline.engine.model.runs import Status
from tideline.engine.simulation.federation import SimSite
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.alignment.divergences import THRESHOLDS, from_curves, h_divergence

ROSTER = {"anna": "peer", "bert": "source", "carl": "target", "dora": "target"}
MAIN = "plan"
# Of each phase more than one round, where there are several, on a world of seconds.
PAIRS: dict[str, Any] = {"rounds": 2, "epochs": 2, "alone": 4, "batch": 32, "rate": 0.05, "momentum": 0.9, "exchanges": 2}


def federation(roster: dict[str, str] = ROSTER, **more: SimSite) -> Stage:
    """The sites; no part is forgotten, at a site neither."""
    return hoarding_stage(METHODS, sites(tuple(roster)) | more)


@remembered
def played(stage: Stage | None = None, roster: dict[str, str] = ROSTER, **config: Any) -> tuple[Stage, Any]:
    """One finished run."""
    stage = stage or federation(roster)
    run = stage.start(experiment("stlf", roster, config=PAIRS | config))
    row = stage.play(run)
    assert row.status is Status.COMPLETED, row.cause
    return stage, run


def silent_in(stage: Stage, run: Any, phase: str, *lost: tuple[str, int]) -> Callable[[list[Order]], list[Order]]:
    """Everybody answers but these, each from a round of a phase on."""
    plan = stage.row(run).plan
    since = {name: next(i for i, p in enumerate(plan) if (p.phase, p.round) == (phase, number)) for name, number in lost}

    def choose(orders: list[Order]) -> list[Order]:
        client = {o.id: stage.journal.order(o.id).client for o in orders}  # type: ignore[union-attr]
        return [o for o in orders if o.cursor < since.get(client[o.id], len(plan))]

    return choose


def state(stage: Stage, run: Any) -> State:
    """The final one."""
    return decode(State, stage.journal.rounds(run)[-1].state[0][0], stage.parts, LAX)


def memory(stage: Stage, run: Any, name: str) -> Mine:
    """What a device keeps in the end."""
    digest = stage.vaults[ClientId(name)].past[-1].memory[0][0]
    return decode(Mine, digest, stage.vaults[ClientId(name)].parts(run), LAX)


def asked(stage: Stage, run: Any, phase: str) -> dict[tuple[str, int], Any]:
    """The orders of a phase, by client and round."""
    plan = stage.row(run).plan
    return {
        (o.client, plan[o.cursor].round): o for o in stage.journal.orders(run) if o.cursor >= 0 and plan[o.cursor].phase == phase
    }


def reported(stage: Stage, run: Any, phase: str, kind: type[Any]) -> dict[str, Any]:
    """What each client answered in the first round of a phase."""
    found = {client: order for (client, number), order in asked(stage, run, phase).items() if number == 1}
    return {
        c: decode(kind, o.reply[0][0], stage.parts, Rules(like=(template(stage, run),), finite=False)) for c, o in found.items()
    }


def template(stage: Stage, run: Any) -> Model:
    """The common model as it began."""
    first = decode(State, stage.journal.rounds(run)[0].state[0][0], stage.parts, LAX)
    return Model(first.model)


def test_the_common_model_is_the_mean_by_labelled_rows() -> None:
    """Of those who have labels and no others; validation rows are not counted, as they are not learnt from."""
    stage, run = played(rounds=1)
    replies = reported(stage, run, "warm", Update)
    assert sorted(replies) == ["anna", "bert"]
    assert {reply.count for reply in replies.values()} == {41 - 4}
    total = sum(reply.count for reply in replies.values())
    expected = weighted_sum((replies[c].count / total, replies[c].model) for c in sorted(replies))
    handed = decode(Model, asked(stage, run, "train")["carl", 1].files[0][0], stage.parts, LAX)
    for name, w in expected.items():
        torch.testing.assert_close(handed.model[name], w)


def partly(labelled: int, bare: int) -> SimSite:
    """A site that labels some of its rows."""

    def opened(world: World, role: Role) -> Rows:
        whole = rows(0, world)
        train: Data = replace(
            whole.train,
            x=MemoryRows(whole.train.x.all()[:labelled]),
            y=None if whole.train.y is None else whole.train.y[:labelled],
        )
        train = replace(
            train, domain=whole.train.domain[:labelled], bare=MemoryRows(whole.train.x.all()[labelled : labelled + bare])
        )
        return Rows(train, whole.held_out)

    return SimSite(opened)


def test_rows_without_labels_count_as_wrong() -> None:
    """Eq. 3: of D_i rows D_i^L are labelled, and the share of wrong ones is measured on these."""
    stage, run = played(federation(anna=partly(30, 10)), alone=30)
    replies = reported(stage, run, "train", Profile)
    assert (replies["anna"].count, replies["anna"].labelled) == (40, 30)
    assert 0.25 <= replies["anna"].error <= 0.5
    assert (replies["carl"].labelled, replies["carl"].error) == (0, 1.0)
    assert replies["bert"].error <= 0.5


@pytest.mark.nightly(job="numbers")
def test_divergences_are_those_of_the_pairs_errors() -> None:
    """Symmetric, zero at home, 2 |1 - 2 err| of the mean of both errors; larger for domains that lie farther apart."""
    stage, run = played(exchanges=12, share=1.0)
    end = state(stage, run)
    assert end.names == tuple(sorted(ROSTER))
    assert torch.equal(end.d, end.d.T)
    assert torch.equal(end.d.diagonal(), torch.zeros(4, dtype=torch.float64))
    mine, theirs = end.errors["anna"]["dora"].above, end.errors["dora"]["anna"].above
    assert end.d[0, 3] == from_curves(mine, theirs)
    assert end.d[0, 3] > end.d[0, 1]
    plain, other = played(exchanges=12, share=1.0, calibrated=False)
    assert state(plain, other).d[0, 3] == h_divergence((mine[THRESHOLDS // 2] + theirs[THRESHOLDS // 2]) / 2)


@pytest.mark.nightly(job="numbers")
def test_identical_and_separable_data() -> None:
    """Devices with the same rows are hardly told apart; those whose rows have nothing in common are, however it is measured."""

    def moved(by: float) -> SimSite:
        def opened(world: World, role: Role) -> Rows:
            whole = rows(0, world)
            train = replace(whole.train, x=MemoryRows(whole.train.x.all() + by), y=None if role is Role.TARGET else whole.train.y)
            return Rows(train, whole.held_out)

        return SimSite(opened)

    for divergence in ("pairs", "shared", "statistics"):
        stage = federation(anna=moved(0), bert=moved(0), carl=moved(40), dora=moved(0))
        stage, run = played(stage, divergence=divergence, exchanges=20, share=1.0)
        d = state(stage, run).d
        assert d[0, 1] <= 0.5, divergence
        assert d[0, 2] >= 1.9, divergence
        assert d[1, 2] >= 1.9, divergence


def test_a_target_gets_the_weighted_mean_of_its_sources() -> None:
    """Eq. 12, from the models that the sources keep; sources keep their own, and only what has a weight is handed out."""
    stage, run = played(weights="power", exponent=2.0, compare=["fedavg_alpha"])
    end = state(stage, run)
    main = next(plan for plan in end.plans if plan.rule == MAIN)
    for j, name in enumerate(end.names):
        mine = memory(stage, run, name)
        if not main.psi[j]:
            assert mine.models[MAIN].keys() == mine.h.keys()
            assert all(torch.equal(mine.models[MAIN][k], mine.h[k]) for k in mine.h)
            continue
        weights = {end.names[i]: float(a) for i, a in enumerate(main.alpha[:, j]) if a > 0}
        expected = weighted_sum((a, memory(stage, run, source).h) for source, a in sorted(weights.items()))
        for key, w in expected.items():
            torch.testing.assert_close(mine.models[MAIN][key], w)
        order = asked(stage, run, "transfer")[name, 1]
        assert {handle.holder for handle in order.sealed} == set(decode(Assignment, order.files[0][0], stage.parts, LAX).sources)


def test_columns_and_rows_of_every_rule() -> None:
    """Columns of targets sum to one, those of sources and rows of targets are zero; who has no labels is a target."""
    stage, run = played(compare=list(RULES), attention={"carl": {"anna": 3.0, "bert": 1.0}})
    end = state(stage, run)
    assert [plan.rule for plan in end.plans] == [MAIN, *RULES]
    for plan in end.plans:
        target = plan.psi == 1
        assert bool(target[2:].all())
        assert torch.allclose(plan.alpha.sum(0), target.double())
        assert torch.equal(plan.alpha[target], torch.zeros_like(plan.alpha[target]))


def test_weights_that_were_given_are_those_of_the_rule() -> None:
    """Of a target's sources in proportion; of a target of which nothing was given, equal ones; others are of no use."""
    given = {"carl": {"anna": 3.0, "bert": 1.0, "dora": 5.0}}
    end = state(*played(compare=["attention_alpha"], attention=given))
    plan, a = end.plans[1], end.plans[1].alpha
    assert plan.psi.tolist() == end.plans[0].psi.tolist()
    sources = [i for i, psi in enumerate(plan.psi.tolist()) if not psi]
    if sources == [0, 1]:
        assert a[:, 2].tolist() == [0.75, 0.25, 0.0, 0.0]
        assert a[:, 3].tolist() == [0.5, 0.5, 0.0, 0.0]
    else:
        assert a[sources[0], 2:].tolist() == [1.0, 1.0]


def test_the_report_tells_links_and_compares_rules() -> None:
    """Groups, divergences, weights, joules, the sweep; and the mean accuracy of each rule's targets with its joules."""
    stage, run = played(compare=["fedavg_alpha", "random_psi"], sweep=[10.0, 0.01], solver="sca", alone=10)
    phases = {(p["name"], p["round"]): p for p in stage.result(run)["phases"]}
    transfer, score = phases["transfer", 1], phases["score", 1]
    assert set(transfer["groups"]) == {"sources", "targets"}
    assert set(transfer["groups"]["targets"]) >= {"carl", "dora"}
    tables = transfer["tables"]
    assert tables["what links cost by phi_E"]["rows"] == ["0.01", "10"]
    assert len(tables["objective by iteration"]["values"][0]) > 5
    assert [row[2:] for row in tables["devices"]["values"]][2:] == [[41.0, 0.0]] * 2
    assert all(weight > 0 and joules > 0 for weight, joules in tables["links"]["values"])
    compared = score["tables"]["links compared"]
    assert compared["rows"] == [MAIN, "fedavg_alpha", "random_psi"]
    assert max(row[2] for row in compared["values"]) == 100
    assert all(row[0] > 0.8 for row in compared["values"])


def test_each_half_is_for_its_partner_alone() -> None:
    """Nobody else can open it."""
    stage, _ = played(exchanges=1)
    sealed = [e for vault in stage.vaults.values() for head in vault.past for e in head.sealed]
    halves = [envelope for envelope in sealed if envelope.handle.phase == "separate"]
    assert len(halves) == 4 * 3
    assert all(len(envelope.keys) == 1 for envelope in halves)


@pytest.mark.parametrize("blocks", [5, *night_params(2, 3)])
def test_blocks_give_every_pair_an_error(blocks: int) -> None:
    """However the tournament is cut, also into more parts than it has days."""
    stage, run = played(blocks=blocks, exchanges=2)
    end = state(stage, run)
    assert {name: sorted(errors) for name, errors in end.errors.items()} == {n: sorted(set(ROSTER) - {n}) for n in ROSTER}
    most = max(len(decode(Separated, o.reply[0][0], stage.parts, LAX).own) for o in asked(stage, run, "separate").values())
    assert most == -(-3 // min(blocks, 3))


def test_a_device_that_is_lost_in_the_tournament_is_left_out() -> None:
    """Of the pairs, of the links and of the targets; the marks of its round name it, and the others go on."""
    stage = federation()
    run = stage.start(experiment("stlf", ROSTER, config=PAIRS, waiting={"min_replies": 1, "deadline": 60.0}))
    row = stage.play(run, silent_in(stage, run, "separate", ("carl", 2)))
    assert row.status is Status.COMPLETED, row.cause
    end = state(stage, run)
    assert (end.lost, end.names) == (("carl",), ("anna", "bert", "dora"))
    marks = [r.marks for r in stage.journal.rounds(run) if r.phase == "separate" and r.round == 2]
    assert marks == [{"left out": ("carl",)}]


def test_a_replayed_half_is_refused() -> None:
    """Also one that is signed and sealed well, but of another exchange than is due: the coordinator hands out what is old."""
    stage = federation()
    run = stage.start(experiment("stlf", ROSTER, config=PAIRS | {"exchanges": 4}))
    second = orders_of(stage, run, "separate", 2)
    old = {o.id: o for o in second}
    third = orders_of(stage, run, "separate", 3)
    me = ClientId("anna")
    (mine,) = [o for o in third if stage.journal.order(o.id).client == me]  # type: ignore[union-attr]
    (before,) = [o for o in old.values() if stage.journal.order(o.id).client == me]  # type: ignore[union-attr]
    stage.agents[me].link.fetch = given_out(stage)  # type: ignore[method-assign]
    stage.agents[me].handle(replace(mine, files=before.files, sealed=before.sealed))
    row = stage.journal.order(mine.id)
    assert row is not None
    assert row.failure is not None
    assert "of round 1 of separate, where that of" in row.failure.what
    assert "of round 2 of separate, is due" in row.failure.what


def given_out(stage: Stage) -> Any:
    """A relay that hands out whatever is asked for."""

    def fetched(order: Order, files: Any, parts: Any) -> None:
        for digest, _ in files:
            parts.put([bytes(stage.parts.view(digest))])

    return fetched


def orders_of(stage: Stage, run: Any, phase: str, number: int) -> list[Order]:
    """The open orders of a round, once it has begun; whoever was asked before has answered."""
    for action in stage.actions(run):
        stage.alive(action)
        found = [o for o in stage.waiting() if (o.phase, o.round) == (phase, number)]
        if found:
            return found
    raise AssertionError("that round never came")


def test_peers_that_turn_out_to_have_no_labels() -> None:
    """What was assumed at the submission is looked at when all have joined: the run ends with the reason."""

    def unlabelled(world: World, role: Role) -> Rows:
        whole = rows(0, world)
        return Rows(replace(whole.train, y=None), whole.held_out)

    roster = dict.fromkeys(("anna", "bert"), "peer")
    stage = federation(roster, anna=SimSite(unlabelled), bert=SimSite(unlabelled))
    run = stage.start(experiment("stlf", roster))
    row = stage.play(run)
    assert row.status is Status.FAILED
    assert "No device has labels, so that none can be a source" in row.cause


def test_one_labelled_device_teaches_all() -> None:
    """It is the source, with weight 1 in everybody else."""
    roster = {"anna": "source", "bert": "target", "carl": "target"}
    stage, run = played(federation(roster), roster)
    main = state(stage, run).plans[0]
    assert main.psi.tolist() == [0, 1, 1]
    assert main.alpha[0].tolist() == [0, 1, 1]


def test_all_labelled_may_link_nobody() -> None:
    """Where no target gains, all are sources: nothing is sent, and everybody is scored by its own model."""
    roster = {"anna": "source", "bert": "source", "carl": "peer"}
    stage, run = played(federation(roster), roster, phi_energy=1e6, alone=10)
    end = state(stage, run)
    assert (end.plans[0].links, end.plans[0].psi.tolist()) == (0, [0, 0, 0])
    assert not asked(stage, run, "offer")
    assert all(c["accuracy"] > 0.8 for c in stage.result(run)["clients"])


def test_given_powers_and_rates_make_the_joules() -> None:
    """K = P M / R; what is given changes no draw of the others; a rate of 0 is no link."""
    config = {"watts": {"anna": 0.5}, "rates": {"anna": {"carl": 1e6}, "bert": {"dora": 0.0}}, "bits": 1e6}
    stage, run = played(**config)
    drawn, drawn_run = played(bits=1e6)
    K, other = state(stage, run).K, state(drawn, drawn_run).K
    assert K[0, 2] == pytest.approx(0.5)
    assert K[1, 3] == -1
    assert torch.equal(K[1, :3], other[1, :3])
    assert torch.equal(K[2:], other[2:])
    assert state(stage, run).plans[0].alpha[1, 3] == 0


def test_measured_rates_make_the_joules() -> None:
    """Bytes over seconds of what was fetched and sent; a link's time is the sum of both ways, and a rate of 0 stays no link."""
    stage = federation()
    for name, agent in stage.agents.items():
        agent.watch = Steady(0.5 if name == "carl" else 0.25)
    stage, run = played(stage, measured=True, bits=1e6, rates={"bert": {"dora": 0.0}})
    end = state(stage, run)
    sizes = {
        e.handle.holder: e.bytes for v in stage.vaults.values() for h in v.past for e in h.sealed if e.handle.phase == "separate"
    }
    for receiver, rates in end.rates.items():
        for sender, rate in rates.items():
            assert rate == pytest.approx(8 * sizes[ClientId(sender)] / (0.5 if receiver == "carl" else 0.25))
    expected = end.watts[0] * 1e6 * (1 / end.sent["anna"] + 1 / end.rates["carl"]["anna"])
    assert end.K[0, 2] == pytest.approx(float(expected))
    assert end.K[1, 3] == -1
    table = next(r.tables for r in stage.journal.rounds(run) if r.phase == "transfer")["measured Mbit/s, from each to each"]
    assert table.values[0][2] == pytest.approx(end.rates["carl"]["anna"] / 1e6)
    assert any("rates are measured" in note for note in stage.row(run).spec.notes)
    assert state(*played()).rates == {name: {} for name in ROSTER}


class Steady:
    """A clock that goes on by so many seconds each time it is looked at."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_names_are_no_order() -> None:
    """The roster's order in the experiment changes nothing."""
    one, first = played()
    stage = federation()
    run = stage.start(experiment("stlf", dict(reversed(ROSTER.items())), config=PAIRS))
    assert stage.play(run).state_digest == one.row(first).state_digest
