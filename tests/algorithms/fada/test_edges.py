"""What FADA does where something is missing, wrong or too small."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.algorithms.fada.played import (
    ROSTER,
    SMALL,
    WHOLE,
    close,
    contribution,
    federation,
    letting_out,
    marks,
    memory_of,
    opened,
    place,
    played,
    replied,
    state,
    train,
    unlabelled,
)
from tests.algorithms.lies import night_params
from tests.algorithms.source_free.played import away
from tests.synthetic import FEATURES, experiment
from tideline import nets
from tideline.algorithms.fada import client, server, source, target
from tideline.algorithms.fada.client import trained
from tideline.algorithms.fada.messages import Contribution, Follow, Halves, Identifier, Identifiers, Improve, Mine
from tideline.algorithms.fada.settings import FADA, FDANN
from tideline.archive.errors import NotFinite, WrongDims
from tideline.core.asked.world import World
from tideline.core.errors import DataRefused, Malformed, StepFailed
from tideline.core.handle import Handle
from tideline.core.phase import Folded, Replies, Turn
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Member, Role
from tideline.core.step import Data
from tideline.engine.model.runs import Status
from tideline.nets.disentangling import numbers

LONG = pytest.mark.nightly(job="numbers")  # the other pairs of the same
WORLD = World(inputs=(8,), classes=3, model="mlp")


def mine(seed: int = 0, **more: Any) -> Mine:
    """A site with a network, and twenty rows that are watched."""
    torch.manual_seed(seed)
    none, G, points = torch.zeros(0, dtype=torch.int64), nets.weights_of(nets.build(WORLD)), torch.zeros(0, 2)
    return replace(Mine(G, {}, {}, {}, torch.arange(20), points, none, none, 0, none, {}, {}), **more)


def offered(values: dict[str, Any]) -> tuple[dict[str, Handle[Contribution]], Any]:
    """Handles of what sources made in round 1, and what opens them: it raises what stands in place of a value."""

    def fetch(handle: Handle[Contribution], like: Any = None) -> Contribution:
        value = values[handle.holder]
        if isinstance(value, Exception):
            raise value
        return Contribution(value, {})

    return {name: Handle(name, 1, ClientId(name), "improve", 1) for name in values}, fetch


def followed(values: dict[str, Any], memory: Mine | None = None, data: Data | None = None, **config: Any) -> Any:
    """One `follow` by itself, of a target of the third domain."""
    handles, fetch = offered(values)
    site = place({"parts": "I", **config}, Role.TARGET, data or unlabelled(train(2)), fetch=fetch)
    return target.follow.run(Follow({}, handles, ""), memory or mine(), site)


def change(size: float, seed: int = 1) -> dict[str, Tensor]:
    """A contribution."""
    torch.manual_seed(seed)
    return {name: size * torch.randn(w.shape) for name, w in trained(mine().model).items()}


def test_one_source_has_all_the_weight() -> None:
    """Nothing is clustered for it."""
    reported = followed({"anna": change(0.01)})
    assert reported.message.w == {"anna": 1.0} and reported.message.gains == {}


def test_fewer_rows_than_classes_keep_the_weights() -> None:
    """And the gains so far; the model goes on."""
    data, memory = (
        unlabelled(train(2)),
        mine(rows=torch.arange(2), w={"anna": 0.7, "bert": 0.3}, gains={"anna": 1.0, "bert": 0.0}),
    )
    few = Data(MemoryRows(data.x.all()[:2]), None, data.domain[:2], data.domains)
    reported = followed({"anna": change(0.01), "bert": change(0.01, 2)}, memory, few)
    assert reported.message.w == pytest.approx({"anna": 0.7, "bert": 0.3}) and reported.message.gains == {}
    assert reported.memory.gains == memory.gains and "looseness" not in reported.metrics


@pytest.mark.parametrize("attention", ["flattened", "raw", "uniform"])
def test_equal_gains_are_equal_weights(attention: str) -> None:
    """Of two sources that sent the same."""
    reported = followed({"anna": change(0.01), "bert": change(0.01)}, attention=attention)
    assert reported.message.w == pytest.approx({"anna": 0.5, "bert": 0.5})


def test_a_source_whose_clusters_are_tighter_weighs_more() -> None:
    """And its gain is as eq. 3 has it; flattened, no weight leaves its bounds."""
    better = {name: 0.5 * w for name, w in change(0.0).items()}
    better["features.1.weight"] = mine().model["features.1.weight"] * torch.tensor([4.0, 4.0, 4.0, 0, 0, 0, 0, 0])
    reported = followed({"anna": better, "bert": change(0.5)}, sharpness=50.0)
    assert reported.message.gains["anna"] > 0 > reported.message.gains["bert"]
    assert reported.message.w["anna"] > 0.6 and all(1 / 3 <= w <= 2 / 3 for w in reported.message.w.values())
    assert followed({"anna": better, "bert": change(0.5)}, sharpness=50.0, attention="raw").message.w["anna"] > 0.99


def test_a_contribution_that_is_not_finite_is_left_out() -> None:
    """Whoever sent it; the others' weights are brought to sum one, and nothing of it is in the model."""
    wrong = NotFinite("The value that bert sealed: theta/classifier.bias holds a NaN or an infinity")
    reported = followed({"anna": change(0.01), "bert": wrong, "carl": change(0.01, 3)})
    assert sorted(reported.message.w) == ["anna", "carl"] and sum(reported.message.w.values()) == pytest.approx(1.0)
    alone = followed({"anna": change(0.01), "carl": change(0.01, 3)})
    assert all(torch.equal(reported.memory.model[name], w) for name, w in alone.memory.model.items())


def test_no_contribution_at_all_leaves_the_model() -> None:
    """Of the one source there was."""
    reported = followed({"anna": NotFinite("no number")})
    assert reported.message.w == {} and all(torch.equal(reported.memory.model[name], w) for name, w in mine().model.items())


@pytest.mark.parametrize("theta", [{"classifier.bias": torch.zeros(3)}, {**change(0.1), "classifier.bias": torch.zeros(4)}])
def test_a_contribution_of_another_network_is_refused(theta: dict[str, Tensor]) -> None:
    """With the name of its holder."""
    with pytest.raises(StepFailed, match="What bert sealed is of another network") as refusal:
        followed({"anna": change(0.01), "bert": theta})
    assert "same version" in refusal.value.todo


def test_what_is_malformed_otherwise_is_refused() -> None:
    """A lie is no accident."""
    with pytest.raises(Malformed, match="bert sealed"):
        followed({"bert": WrongDims("The value that bert sealed: theta has no such shape")})


@pytest.mark.parametrize("handle", [("anna", "improve", 1), ("bert", "source", 1), ("bert", "improve", 2)])
def test_another_value_than_is_due_is_refused(handle: tuple[str, str, int]) -> None:
    """Of another site, phase or round, however well it is sealed."""
    holder, phase, number = handle
    given = Handle[Contribution]("bert", 1, ClientId(holder), phase, number)
    site = place({"parts": "I"}, Role.TARGET, unlabelled(train(2)), fetch=lambda handle: Contribution(change(0.1), {}))
    with pytest.raises(StepFailed, match="that of bert, of round 1 of improve, is due"):
        target.follow.run(Follow({}, {"bert": given}, ""), mine(), site)


def improved(data: Data, memory: Mine, **config: Any) -> Any:
    """One `improve` by itself."""
    di = {"carl": Identifier(torch.zeros(numbers(64)))}
    order = Improve(di, {}, ("carl",), "", show=False)
    return source.improve.run(order, memory, place({"parts": "II", **config}, Role.SOURCE, data))


def test_a_source_of_one_row_makes_nothing() -> None:
    """Batch norm has no variance of it; what the site keeps stays."""
    data = train(0)
    assert data.y is not None
    one = Data(MemoryRows(data.x.all()[:1]), data.y[:1], data.domain[:1], data.domains)
    reported = improved(one, mine())
    assert reported.message.contribution is None and reported.metrics == {} and reported.memory.common == {}


def test_a_source_that_diverges_makes_nothing() -> None:
    """Its network stays as it was before, and no metric is told that is no number."""
    before = mine(model={name: 1e30 * w for name, w in mine().model.items()})
    reported = improved(train(0), before, rate=1.0)
    assert reported.message.contribution is None and reported.memory is before
    assert all(math.isfinite(value) for value in reported.metrics.values())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e15])
def test_a_half_that_no_reply_may_hold_is_not_sent(value: float) -> None:
    """The other pairs' are."""
    good = torch.zeros(numbers(64))
    order = Identifiers({"anna": Identifier(good), "bert": Identifier(torch.full_like(good, value))})
    reported = client.identify.run(order, mine(), place({}, Role.TARGET, unlabelled(train(2))))
    assert sorted(reported.message.halves) == ["anna"] and math.isfinite(reported.metrics["loss"])


def test_a_half_beyond_all_others_spoils_its_own_pair_alone() -> None:
    """It is stepped along by nobody, and who sent it is named; the other pair goes on."""
    stage, run = played(**WHOLE, parts="II")
    before, given = state(stage, run, "share"), replied(stage, run, "identify", Halves)
    wild = {name: replace(half, g=torch.full_like(half.g, 9e14)) for name, half in given["bert"].halves.items()}
    replies = Replies({ClientId(name): lambda h=h: h for name, h in {**given, "bert": Halves(wild)}.items()})
    roster = tuple(Member(ClientId(name), Role(role), role == "source") for name, role in ROSTER.items())
    turn = Turn(FADA(**WHOLE, parts="II"), WORLD, roster, 1, torch.Generator())
    reported = server.stepped(before, replies, turn)
    assert isinstance(reported, Folded) and reported.marks == {"left out": ("bert",)}
    after = reported.state.di["carl"]
    assert torch.equal(after["bert"].theta, before.di["carl"]["bert"].theta)
    assert torch.equal(after["anna"].theta, state(stage, run, "identify").di["carl"]["anna"].theta)


def test_a_weight_of_zero_is_a_weight() -> None:
    """Raw attention can come to it; in a round without gains it stays, and where nobody has another all weigh alike."""
    one, two = {"anna": change(0.01)}, {"anna": change(0.01), "bert": change(0.01, 2)}
    few, before = mine(rows=torch.arange(2), w={"anna": 0.0, "bert": 1.0}), train(2)
    data = Data(MemoryRows(before.x.all()[:2]), None, before.domain[:2], before.domains)
    assert followed(two, few, data, attention="raw").message.w == {"anna": 0.0, "bert": 1.0}
    assert followed(one, few, data, attention="raw").message.w == {"anna": 1.0}
    again = followed(two, mine(w={"anna": 0.0, "bert": 1.0}), attention="raw")
    assert sum(again.message.w.values()) == pytest.approx(1.0) and again.message.w["anna"] > 0


def test_halves_of_too_few_rows_are_refused() -> None:
    """They would tell of single rows."""
    data = unlabelled(train(2))
    few = Data(MemoryRows(data.x.all()[:15]), None, data.domain[:15], data.domains)
    with pytest.raises(DataRefused, match=r"The site has 15 training rows.*below 16"):
        client.identify.run(Identifiers({}), mine(), place({}, Role.TARGET, few))
    with pytest.raises(DataRefused, match=r"The site has 15 training rows.*below 16"):
        client.prepare(None, place({}, Role.TARGET, few))  # when it joins, before it has sent a model for nothing
    assert len(client.prepare(None, place({"parts": "I"}, Role.TARGET, few)).rows) == 15


def test_no_rows_are_refused() -> None:
    """When the site joins."""
    data = train(0)
    none = Data(MemoryRows(data.x.all()[:0]), None, data.domain[:0], data.domains)
    with pytest.raises(DataRefused, match="no training rows"):
        client.prepare(None, place({}, Role.TARGET, none))


@pytest.mark.parametrize(
    "config",
    [
        {"source_rounds": 1, "rate": 1e30},
        {"source_rounds": 0, "rate": 1e30},
        {"source_rounds": 1, "parts": "II", "lambda_adv": 1e37},
    ],
)
def test_a_run_in_which_all_sources_diverge_ends(config: dict[str, Any]) -> None:
    """Targets would be given what was drawn at random, or nothing any more, and the run would complete."""
    stage = federation()
    row = stage.play(stage.start(experiment("fada", ROSTER, config=config)))
    assert row.status is Status.FAILED
    assert "numbers of anna, bert are not finite" in row.cause and "Lower the learning rate" in row.cause


def lacking(data: Data) -> Data:
    """Without rows of the last class."""
    assert data.y is not None
    rows = data.y < 2
    return replace(data, x=MemoryRows(data.x.all()[rows]), y=data.y[rows], domain=data.domain[rows])


def test_a_source_without_some_classes_is_named() -> None:
    """It takes part."""
    stage = federation(bert=opened(lacking))
    stage, run = played(stage=stage)
    assert marks(stage, run, "share") == [{"lacks classes": ("bert",)}]
    assert state(stage, run).w["carl"].keys() == {"anna", "bert"}


def lost(stage: Any, run: Any, name: str, phases: set[str], number: int) -> Any:
    """Everybody answers but one site in one round."""

    return stage.play(run, away(stage, name, *((phase, number) for phase in phases)))


TWO_TARGETS = {**ROSTER, "dora": "target"}


def begun(roster: dict[str, str] = ROSTER, **config: Any) -> tuple[Any, Any]:
    """A run that goes on without a site that is late."""
    stage = letting_out(roster)
    given = experiment("fada", roster, config={"rounds": 3, **config}, waiting={"min_replies": 1, "deadline": 60.0})
    return stage, stage.start(given)


def test_a_lost_source_is_left_out_of_a_round() -> None:
    """Its weight is the other's, the marks name it, and later it is back."""
    stage, run = begun(source_rounds=0)
    row = lost(stage, run, "bert", {"improve"}, 2)
    assert row.status is Status.COMPLETED, row.cause
    assert [m.get("left out") for m in marks(stage, run, "improve")] == [None, ("bert",), None]
    assert state(stage, run, "follow", 2).w == {"carl": {"anna": 1.0}}
    assert state(stage, run, "follow", 3).w["carl"].keys() == {"anna", "bert"}


DELTA, GRAD = {"mode": "delta"}, {"mode": "grad", "steps": 1}


@pytest.mark.parametrize(
    ("who", "steps"),
    [("bert", GRAD), *night_params(("anna", DELTA), ("anna", GRAD), ("bert", DELTA))],
)
def test_a_lost_source_begins_where_the_others_do(who: str, steps: dict[str, Any]) -> None:
    """One round after it is back: the others' changes of the round that it missed are not lacking for ever."""
    stage, run = begun(rounds=4, source_rounds=0, **steps)
    row = lost(stage, run, who, {"improve"}, 2)
    assert row.status is Status.COMPLETED, row.cause
    starts = {n: [memory_of(stage, run, name, "improve", n).common for name in ("anna", "bert")] for n in (3, 4)}
    apart = {n: max(float((a[k] - b[k]).abs().max()) for k in a) for n, (a, b) in starts.items()}
    assert apart[3] > 1e-3 and apart[4] == 0.0
    assert [state(stage, run, "improve", n).behind for n in (1, 2, 3, 4)] == [(), (who,), (), ()]
    reported = [bool(contribution(stage, run, name, n).start) for n in (1, 3, 4) for name in ("anna", "bert") if name != who]
    assert reported == [False, True, False]


@pytest.mark.nightly(job="numbers")
@pytest.mark.parametrize("method", ["fada", "fdann"])
def test_equal_weights_stay_equal_when_a_source_comes_back(method: str) -> None:
    """Of three, of which one was away for a round; what is kept of others is not less for it either."""
    roster = {"anna": "source", "bert": "source", "dora": "source", "carl": "target"}
    stage = federation(roster)
    config = {"rounds": 3, **({"attention": "uniform"} if method == "fada" else {})}
    given = experiment(method, roster, config=config, waiting={"min_replies": 1, "deadline": 60.0})
    run = stage.start(given)
    assert lost(stage, run, "bert", {"improve"}, 2).status is Status.COMPLETED
    reported = [state(stage, run, "follow", n).w["carl"] for n in (1, 2, 3)]
    assert reported[1] == pytest.approx({"anna": 1 / 2, "dora": 1 / 2})
    assert reported[0] == pytest.approx(dict.fromkeys(("anna", "bert", "dora"), 1 / 3)) and reported[2] == pytest.approx(
        reported[0]
    )
    alone = followed({"anna": change(0.01)}, mine(w={"anna": 0.7, "bert": 0.3}))
    assert alone.message.w == {"anna": 1.0} and alone.memory.w == {"anna": 0.7, "bert": 0.3}


@pytest.mark.nightly(job="numbers")
def test_a_lost_target_keeps_its_weights() -> None:
    """While the other goes on; the round is none of its own."""
    stage, run = begun(TWO_TARGETS)
    assert lost(stage, run, "carl", {"follow"}, 2).status is Status.COMPLETED
    carl, dora = ([state(stage, run, "follow", n).w[name] for n in (1, 2, 3)] for name in ("carl", "dora"))
    assert carl[0] == carl[1] != carl[2] and dora[0] != dora[1]


def after_a_lost_round(missed: set[int], **config: Any) -> list[Any]:
    """What carl kept after each `follow` of those that he answered."""
    stage, run = begun(TWO_TARGETS, rounds=5, source_rounds=0, **config)
    row = stage.play(run, away(stage, "carl", *(("follow", number) for number in missed)))
    assert row.status is Status.COMPLETED, row.cause
    assert state(stage, run, "follow", 5).late == ()
    return [memory_of(stage, run, "carl", "follow", n) for n in range(1, 6) if n not in missed]


@pytest.mark.parametrize(
    ("missed", "steps"),
    [({2, 3}, DELTA), *night_params(({2}, GRAD), ({2, 3}, GRAD), ({2}, DELTA))],
    ids=str,
)
def test_a_lost_target_comes_to_what_it_would_have_had(missed: set[int], steps: dict[str, Any]) -> None:
    """With equal weights and without alignment, where nothing is its own, as soon as it is back."""
    plain: dict[str, Any] = {"parts": "I", "attention": "uniform", **steps}
    whole, back = after_a_lost_round(set(), **plain), after_a_lost_round(missed, **plain)
    for one, other in zip(reversed(whole), reversed(back[1:]), strict=False):
        close(one.model, other.model, 1e-5)


@pytest.mark.nightly(job="numbers")
@pytest.mark.parametrize("critic", [{}, {"critic": "features", "noise": 0.0}])
def test_a_lost_target_keeps_what_alignment_made(critic: dict[str, Any]) -> None:
    """Its network is the sources' mean and what is left of eq. 5: the same as far as that goes, and no other."""
    given: dict[str, Any] = {"parts": "II", "attention": "uniform", "rate": 0.02, **critic}
    *_, whole = after_a_lost_round(set(), **given)
    *_, back = after_a_lost_round({2}, **given)
    own = {name: back.model[name] - back.drift.get(name, 0) for name in back.model}
    undisturbed = {name: whole.model[name] - whole.drift.get(name, 0) for name in whole.model}
    assert max(float(d.abs().max()) for d in back.drift.values()) > 0
    close(own, undisturbed, 1e-4)


@pytest.mark.nightly(job="numbers")
@pytest.mark.parametrize("config", [{"meet": False}, {"kept": 1.0}, {"mode": "param"}])
def test_a_lost_target_goes_on_where_it_was_otherwise(config: dict[str, Any]) -> None:
    """Sources that have no one model, and a target that does not know what eq. 5 made, ask nobody where a round began."""
    stage, run = begun(TWO_TARGETS, rounds=3, source_rounds=0, **config)
    assert lost(stage, run, "carl", {"follow"}, 2).status is Status.COMPLETED
    assert state(stage, run, "follow", 2).late == ()
    assert not any(contribution(stage, run, name, 3).start for name in ("anna", "bert"))


def test_a_pair_without_both_halves_waits() -> None:
    """Its identifier stays; the other pair's goes on."""
    stage, run = begun(rounds=1, source_rounds=0)
    lost(stage, run, "bert", {"identify"}, 1)
    before, after = state(stage, run, "share").di["carl"], state(stage, run, "identify").di["carl"]
    assert torch.equal(before["bert"].theta, after["bert"].theta)
    assert not torch.equal(before["anna"].theta, after["anna"].theta)
    assert marks(stage, run, "identify")[0] == {"left out": ("bert",)}


def test_who_missed_the_beginning_is_out() -> None:
    """Without the common model nothing can be made of a site; without any source the run ends with the reason."""
    stage, run = begun(rounds=1, source_rounds=0)
    row = lost(stage, run, "bert", {"share"}, 1)
    assert row.status is Status.COMPLETED, row.cause
    assert state(stage, run).begun == ("anna", "carl") and marks(stage, run, "share") == [{"left out": ("bert",)}]
    stage = federation({"anna": "source", "carl": "target"})
    given = experiment("fada", {"anna": "source", "carl": "target"}, waiting={"min_replies": 1, "deadline": 60.0})
    row = lost(stage, run := stage.start(given), "anna", {"share"}, 1)
    assert row.status is Status.FAILED and "No source took the common model" in row.cause


def test_two_targets_have_their_own_identifiers_and_weights() -> None:
    """And their own models."""
    stage = federation({"anna": "source", "bert": "source", "carl": "target", "dora": "target"})
    stage, run = played(stage=stage)
    end = state(stage, run)
    assert end.di.keys() == end.w.keys() == {"carl", "dora"}
    assert not torch.equal(end.di["carl"]["anna"].theta, end.di["dora"]["anna"].theta)
    a, b = (memory_of(stage, run, name, "follow", 2).model for name in ("carl", "dora"))
    assert any(not torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("world", [{**FEATURES, "model": "linear"}, *night_params(SMALL)])
def test_other_networks(world: dict[str, Any]) -> None:
    """Features that are the rows themselves are not aligned, and a note says so; images by the small network."""
    stage, run = played(world=world)
    notes = stage.row(run).spec.notes
    assert any("nothing below its classifier" in note for note in notes) == (world["model"] == "linear")


@pytest.mark.parametrize(("config", "said"), [({"clustered": 2}, True), ({"clustered": 3}, False)])
def test_a_run_that_cannot_cluster_says_so(config: dict[str, Any], said: bool) -> None:
    """Fewer rows than classes make no clusters; where weights are equal by rule, nobody misses them."""
    for method, expected in (("fada", said), ("fdann", False)):
        stage = federation()
        row = stage.row(stage.start(experiment(method, ROSTER, config=config)))
        assert any("all sources weigh alike" in note for note in row.spec.notes) == expected


def test_the_weight_of_eq_5_grows() -> None:
    """Over the first tenth of the rounds; in f-DANN along a sigmoid of the share of rounds done."""
    c = FADA(rounds=40, lambda_adv=2.0)
    assert [c.weight(r) for r in (1, 2, 4, 40)] == [0.5, 1.0, 2.0, 2.0]
    assert FADA(ramp=0.0, lambda_adv=2.0).weight(1) == 2.0
    f = FDANN(rounds=10, lambda_adv=2.0)
    assert [f.weight(r) for r in (1, 5, 10)] == pytest.approx([2 * (2 / (1 + math.exp(-10 * p)) - 1) for p in (0.0, 0.4, 0.9)])


def test_the_rate_falls() -> None:
    """As half a cosine, and never to 0; or it stays."""
    falls, stays = FADA(rounds=4, rate=0.2), FADA(rounds=4, rate=0.2, schedule="constant")
    assert [falls.rate_of(r) for r in (1, 3)] == pytest.approx([0.2, 0.1])
    assert 0 < falls.rate_of(4) < 0.05
    assert {stays.rate_of(r) for r in range(1, 5)} == {0.2}


def test_an_owner_may_take_the_model_out() -> None:
    """A target's own, a network that predicts; nothing before there is one."""
    stage, run = played()
    memory = memory_of(stage, run, "carl", "follow", 2)
    taken = client.keepsakes(None, memory)["model"]
    assert nets.loaded(WORLD, taken)(train(2).x.all()).shape == (41, 3)
    assert client.keepsakes(None, replace(memory, model={}, points=torch.zeros(0, 2))) == {}


def test_a_target_keeps_a_picture_of_its_rows_and_a_source_none() -> None:
    """Where the watched rows lie by G_t, and what C_t takes them for; as the model of the last round has them."""
    stage, run = played(rounds=2, source_rounds=1, identify_steps=1, evaluate_every=2, clustered=15)
    carl, anna = (memory_of(stage, run, name, phase, 2) for name, phase in (("carl", "follow"), ("anna", "improve")))
    picture = client.keepsakes(None, carl)["picture"]
    assert picture["site"].shape == (15, 2) and bool(torch.isfinite(picture["site"]).all())
    assert picture["site_class"].shape == (15,) and set(picture["site_class"].tolist()) <= {0, 1, 2}
    assert set(client.keepsakes(None, anna)) == {"model"}
