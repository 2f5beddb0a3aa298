"""LADD, with a teacher and with prototype labels, in whole runs: what the definition says, who is late or lost, and lies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import save
from torch import Tensor
from torch.nn import functional

from tests.algorithms.compare import close, memory_of, same
from tests.algorithms.ladd.played import BOTH, NORM, TARGETS, WORLD, Open, open_federation, played
from tests.algorithms.lies import NIGHT, Change, night_params, open_round, reported, tier_params
from tests.algorithms.source_free.played import DOMAINS, ROSTER, WAITING, away, federation, sent, site, states
from tests.laws import laws
from tests.laws.laws import EVERYTHING
from tests.laws.stage import registered
from tests.synthetic import IMAGES, blobs, experiment
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.ladd import Ladd, LaddPL, ladd, ladd_pl
from tideline.algorithms.ladd.client import Pupil, Start, State, first_mean, followed, restyled, taught_by
from tideline.algorithms.source_free.family import Mine, Model
from tideline.core.asked.world import World
from tideline.core.run import ClientId, Role
from tideline.core.settings import parse
from tideline.core.step import Site
from tideline.engine.model.orders import OrderStatus
from tideline.engine.simulation.federation import Federation
from tideline.numerics.aggregation.averaging import weighted_sum
from tideline.numerics.alignment.feature_maps import amplitudes, mean_style

one = pytest.mark.parametrize("method", [*night_params("ladd"), "ladd_pl"])  # for what both do in the same code


def part(f: Any, own: bool) -> dict[str, Tensor]:
    """The tensors of batch norm, or all others."""
    return {name: w for name, w in f.items() if name.startswith(NORM) == own}


@pytest.mark.parametrize("method", BOTH)
def test_clusters_are_by_style_and_share_their_norms_alone(method: str) -> None:
    """Each site tells the mean amplitude of its images; bright and dark are apart; norms are a cluster's, the rest is of all."""
    stage, run = played(method, rounds=3)
    first, *_, last = states(stage, run, State)[1:]
    for (name, _), (_, reply) in sent(stage, run, "style").items():
        x = blobs(41, DOMAINS[name], 2 * sorted(DOMAINS).index(name), (1, 8, 8)).x.all()
        torch.testing.assert_close(reply.style, mean_style(x).float())
        assert torch.equal(first.styles[name], reply.style)
    assert last.members == {"bert": 0, "carl": 0, "dora": 1, "emil": 1}
    replies = {k: reply for (k, r), (_, reply) in sent(stage, run, "adapt").items() if r == 3}
    for c, group in enumerate((TARGETS[:2], TARGETS[2:])):
        close(part(last.models[c], True), part(weighted_sum((1 / 2, replies[k].f) for k in group), True))
        close(part(last.models[c], False), part(weighted_sum((1 / 4, replies[k].f) for k in TARGETS), False))
    assert not same(part(last.models[0], True), part(last.models[1], True))
    close(last.f, weighted_sum((1 / 4, replies[k].f) for k in TARGETS))
    ends = {k: memory_of(stage, run, k, Pupil if method == "ladd" else Mine).f for k in TARGETS}
    assert all(same(f, last.models[last.members[k]]) for k, f in ends.items())
    phases = stage.result(run)["phases"]
    assert [(p["name"], p["groups"]) for p in phases if p["groups"]] == [
        ("style", {"cluster 1": ["bert", "carl"], "cluster 2": ["dora", "emil"]})
    ]


def test_means_are_by_rows() -> None:
    """n_i counts, over all and inside a cluster."""
    stage, run = played("ladd_pl", federation(carl=site("carl", 11)), rounds=1)
    state = states(stage, run, State)[-1]
    replies = {k: reply for (k, _), (_, reply) in sent(stage, run, "adapt").items()}
    assert {k: reply.samples for k, reply in replies.items()} == {"bert": 41, "carl": 11, "dora": 41, "emil": 41}
    close(state.f, weighted_sum((reply.samples / 134, reply.f) for reply in replies.values()))
    both = weighted_sum([(41 / 52, replies["bert"].f), (11 / 52, replies["carl"].f)])
    close(part(state.models[state.members["carl"]], True), part(both, True))


@one
def test_the_source_leaves_its_classifier(method: str) -> None:
    """g is what the source sent, and the source is asked once, after the styles."""
    stage, run = played(method)
    ((_, taught),) = sent(stage, run, "source").values()
    assert same(dict(states(stage, run, State)[-1].g), dict(taught.g))
    assert [o.cursor for o in stage.journal.orders(run) if o.client == "anna" and o.cursor >= 0] == [1]
    assert all(c["source_only"] is not None for c in stage.result(run)["clients"] if c["role"] == "target")


@one
def test_plain_averaging_at_first_or_for_ever(method: str) -> None:
    """In the first `bootstrap` rounds, and with no layer of its own, a cluster has the mean over all."""
    stage, run = played(method, rounds=3, bootstrap=2)
    assert [len(state.models) for state in states(stage, run, State)[-6:]] == [0, 0, 0, 0, 2, 2]
    stage, run = played(method, rounds=2, cluster_layers=[])
    last = states(stage, run, State)[-1]
    assert last.models == ()
    close(last.f, weighted_sum((1 / 4, sent(stage, run, "adapt")[k, 2][1].f) for k in TARGETS))
    asked = {k: order.f for (k, r), (order, _) in sent(stage, run, "adapt").items() if r == 2}
    assert all(same(f, asked["bert"]) for f in asked.values())


@pytest.mark.parametrize(
    ("layers", "own"),
    [
        pytest.param(["all"], lambda name: True, marks=NIGHT),
        *night_params((["first"], lambda name: name.startswith("features.backbone.0."))),
        pytest.param(["features.bottleneck"], lambda name: name.startswith("features.bottleneck."), marks=NIGHT),
        (["last", "batch_norm"], lambda name: name.startswith(("features.bottleneck.linear.", NORM))),
    ],
)
def test_other_layers(layers: list[str], own: Any) -> None:
    """By words and by beginnings of names: only these differ between clusters."""
    stage, run = played("ladd_pl", rounds=1, cluster_layers=layers)
    a, b = states(stage, run, State)[-1].models
    apart = {name for name in a if a[name].is_floating_point() and not torch.equal(a[name], b[name])}
    assert apart == {name for name in a if a[name].is_floating_point() and own(name)}


def test_without_batch_norm_the_last_layer_is_the_clusters() -> None:
    """And the run says so."""
    stage, run = played("ladd_pl", rounds=1, more={"world": IMAGES})
    (note,) = stage.result(run)["notes"]
    assert "lenet has no such layer" in note and "features.7" in note
    a, b = states(stage, run, State)[-1].models
    assert {name for name in a if not torch.equal(a[name], b[name])} == {"features.7.weight", "features.7.bias"}
    assert ladd.notes(Ladd(), World(model="lenet_bn")) == ladd.notes(Ladd(cluster_layers=("first",)), World()) == ()


def test_its_loss() -> None:
    """CE over the rows with labels plus lambda_kd KL(h_S || h) over all; of no labels the second term alone."""
    rng = torch.Generator().manual_seed(0)
    logits, before = torch.randn(4, 3, generator=rng), torch.randn(4, 3, generator=rng).softmax(1)
    before[0] = torch.tensor([1.0, 0.0, 0.0])
    p = logits.softmax(1)
    kl = torch.special.xlogy(before, before / p).sum(1).mean()
    labels = torch.tensor([2, -1, 0, -1])
    ce = functional.cross_entropy(logits[[0, 2]], labels[[0, 2]])
    torch.testing.assert_close(followed(logits, labels, before, 0.7), ce + 0.7 * kl)
    torch.testing.assert_close(followed(logits, torch.full((4,), -1), before, 1.0), kl)
    torch.testing.assert_close(followed(before.log().clamp(min=-80), torch.full((4,), -1), before, 1.0), torch.tensor(0.0))


def at(r: int, **config: Any) -> Site:
    """A target in a round."""
    data = replace(blobs(20, 1, 0, (1, 8, 8)), y=None)
    world = World(inputs=(1, 8, 8), classes=3, model="lenet_bn")
    return Site(Ladd(**config), world, ClientId("bert"), Role.TARGET, data, r, torch.Generator().manual_seed(0))


def test_the_teacher_is_the_model_that_came_and_then_their_mean() -> None:
    """Before t_s as it came and nothing is kept; from t_s on the mean of those since, over what the site was sent."""
    memory, seen = Pupil({}, {}, {}, {}, 0), []
    for r, value in ((1, 8.0), (2, 6.0), (3, 3.0), (5, 0.0)):
        order = Start({"w": torch.tensor([value]), "n": torch.tensor(r)}, {}, {})
        memory, teacher = taught_by(order, memory, at(r, rounds=4))
        seen.append((float(teacher["w"]), int(teacher["n"]), memory.taken))
    assert seen == [(8.0, 1, 0), (6.0, 2, 1), (4.5, 3, 2), (3.0, 5, 3)]
    assert [first_mean(Ladd(rounds=r, teacher_from=t)) for r, t in ((1, 0), (20, 0), (20, 3))] == [1, 10, 3]


@pytest.mark.nightly(job="numbers")
def test_the_teacher_in_a_run() -> None:
    """What is kept at the end is the mean of the models that came since t_s; other teachers end elsewhere."""
    stage, run = played("ladd", rounds=4, teacher_from=3)
    kept, asked = memory_of(stage, run, "dora", Pupil), sent(stage, run, "adapt")
    assert kept.taken == 2
    close(kept.teacher, weighted_sum((1 / 2, asked["dora", r][0].f) for r in (3, 4)))
    assert same(asked["dora", 4][0].source, asked["bert", 1][0].f) and same(kept.source, asked["bert", 1][0].f)
    config: dict[str, Any]
    ends = {stage.row(run).state_digest}
    for config in ({"teacher_from": 9}, {"lambda_kd": 0.0}):
        other, again = played("ladd", rounds=4, **{"teacher_from": 3, **config})
        ends.add(other.row(again).state_digest)
    assert len(ends) == 3
    assert memory_of(*played("ladd", rounds=2, teacher_from=9), "dora", Pupil).taken == 0


def test_its_owner_takes_the_model_out() -> None:
    """The cluster's model with g, and not the teacher."""
    stage, run = played("ladd", rounds=2)
    state, kept = states(stage, run, State)[-1], ladd.keepsakes(None, memory_of(stage, run, "dora", Pupil))["model"]
    assert same(kept, {**state.models[1], **state.g})
    nets.loaded(World(inputs=(1, 8, 8), classes=3, model="lenet_bn"), kept)


def test_the_plan() -> None:
    """Styles first, as the source may train in them."""
    names = ["style", "source", "source_only", "adapt", "score", "adapt", "score"]
    assert [p.name for p in ladd.plan(Ladd(rounds=2))] == [p.name for p in ladd_pl.plan(LaddPL(rounds=2))] == names
    assert [p.name for p in ladd.plan(Ladd(rounds=0))] == [*names[:3], "score"]


@pytest.mark.parametrize("method", BOTH)
def test_what_a_site_is_sent_tells_nothing_of_members(method: str) -> None:
    """No order names a site or a cluster, or holds a style."""
    stage, _ = played(method)
    down = b"|".join(data for _, _, data in stage.wire.down)
    assert not [word for word in (*ROSTER, "members", "cluster_models", "styles") if word.encode() in down]


# Style transfer


def test_half_of_the_images_take_a_style_over() -> None:
    """Each of them that of one client, the others stay; all within the range of the source's own images."""
    here = at(1)
    styles = torch.tensor([100.0, 400.0]).view(2, 1, 1, 1)
    x = here.data.x.all().repeat(20, 1, 1, 1)
    made = restyled(styles, here)(x)
    kept = (made == x).flatten(1).all(1)
    assert 150 < int(kept.sum()) < 250
    assert float(made.min()) >= float(here.data.x.all().min()) and float(made.max()) <= float(here.data.x.all().max())
    # Clipping at the ends of the range moves the mean a little.
    nearest = (amplitudes(made[~kept]).flatten(1) - styles.flatten()).abs().argmin(1)
    assert 0 < int(nearest.sum()) < len(nearest)


@one
def test_styles_go_to_the_source_alone(method: str) -> None:
    """It is sent every target's style as it is, without names, and its model is another; no target is sent one."""
    stage, run = played(method, open_federation(), style_transfer=True)
    other, again = played(method)
    order, reply = sent(stage, run, "source")["anna", 1]
    reported = [sent(stage, run, "style")[k, 1][1].style for k in TARGETS]
    assert torch.equal(order.styles, torch.stack(reported))
    assert not same(reply.f, sent(other, again, "source")["anna", 1][1].f)
    for name, _, data in stage.wire.down:
        assert name == "anna" or b"styles" not in data


def test_the_default_policy_keeps_styles_from_other_sites() -> None:
    """A run with style_transfer stalls at the join and names the clause."""
    stage = federation()
    row = stage.play(stage.start(experiment("ladd", ROSTER, world=WORLD, config={"style_transfer": True})))
    assert row.status.value == "stalled"
    assert "sends style" in row.cause and "peers" in row.cause


@pytest.mark.parametrize(
    ("method", "law"),
    [
        ("ladd", laws.functions_are_pure),
        pytest.param("ladd_pl", laws.functions_are_pure, marks=NIGHT),
        pytest.param("ladd", laws.archive_keeps_all, marks=NIGHT),
        pytest.param("ladd_pl", laws.peers_see_what_is_declared, marks=NIGHT),
    ],
)
def test_the_laws_hold_with_style_transfer(method: str, law: Any) -> None:
    """Where sites allow it."""
    plain = {"ladd": ladd, "ladd_pl": ladd_pl}[method]
    presets = {name: {**of, "style_transfer": True} for name, of in plain.presets.items()}
    law(Open(method, registered(replace(plain, presets=presets))))


def test_its_own_labels_are_for_the_whole_round() -> None:
    """LADD with prototype labels is sent the cluster's model alone."""
    stage, run = played("ladd_pl", rounds=2)
    assert {type(order) for order, _ in sent(stage, run, "adapt").values()} == {Model}


BERT = ClientId("bert")
NOTE = "has no source: no image takes another style"


@pytest.mark.parametrize("method", ["ladd", *night_params("ladd_pl")])
def test_a_site_whose_style_is_unknown_has_the_model_of_all(method: str) -> None:
    """It belongs to no cluster, takes part in the mean over all, and is in no cluster's own layers."""
    stage = federation()
    stage, run = played(method, stage, away(stage, "emil", ("style", 1)), WAITING, rounds=2)
    last = states(stage, run, State)[-1]
    assert sorted(last.members) == TARGETS[:3]
    asked = {k: sent(stage, run, "adapt")[k, 2][0].f for k in TARGETS}
    replies = {k: sent(stage, run, "adapt")[k, 1][1].f for k in TARGETS}
    assert same(asked["emil"], states(stage, run, State)[-3].f)
    name = f"{NORM}weight"
    torch.testing.assert_close(asked["emil"][name], torch.stack([f[name] for f in replies.values()]).mean(0))
    assert last.members["dora"] not in (last.members["bert"], last.members["carl"])
    assert torch.equal(asked["dora"][name], replies["dora"][name])  # alone in its cluster
    assert all(c["accuracy"] is not None for c in stage.result(run)["clients"] if c["role"] == "target")


def test_of_a_cluster_of_which_one_site_answered_half_stays() -> None:
    """So the others are not sent that site's own layers; all others are the mean over those who answered."""
    stage = federation()
    stage, run = played("ladd_pl", stage, away(stage, "carl", ("adapt", 1)), WAITING, rounds=2)
    start, reply = sent(stage, run, "adapt")["bert", 1]
    after = sent(stage, run, "adapt")["carl", 2][0].f
    name = f"{NORM}weight"
    torch.testing.assert_close(after[name], (start.f[name] + reply.f[name]) / 2)
    assert not torch.equal(after[name], reply.f[name])


def test_a_cluster_of_which_nobody_answered_keeps_its_layers() -> None:
    """And takes the others from the mean over all."""
    stage = federation()
    both = [away(stage, name, ("adapt", 2)) for name in ("bert", "carl")]
    stage, run = played("ladd_pl", stage, lambda orders: both[1](both[0](orders)), WAITING, rounds=3)
    before, after = (sent(stage, run, "adapt")["bert", r][0].f for r in (2, 3))
    others = sent(stage, run, "adapt")["dora", 3][0].f
    assert all(torch.equal(after[name], (before if name.startswith(NORM) else others)[name]) for name in after)


@pytest.mark.parametrize("method", BOTH)
def test_one_target_alone(method: str) -> None:
    """One cluster, whose model is the site's."""
    stage, run = played(method, more={"roster": {"anna": "source", "dora": "target"}}, rounds=2)
    state = states(stage, run, State)[-1]
    assert state.members == {"dora": 0}
    assert same(state.models[0], sent(stage, run, "adapt")["dora", 2][1].f)


@pytest.mark.parametrize("rows", [0, 1])
def test_a_site_of_one_image_tells_no_style(rows: int) -> None:
    """It would be that image's; the site says so, and the run names it."""
    stage = federation(dora=site("dora", rows))
    row = stage.play(stage.start(experiment("ladd", ROSTER, world=WORLD)))
    assert row.status.value == "stalled"
    assert "dora" in row.cause and "a style is a mean over two or more" in row.cause


def filled(name: str, value: Any) -> Change:
    """A field of other numbers."""
    return lambda given: {name: torch.as_tensor(value).expand_as(given[name]).clone()}


ADMITTED: dict[str, tuple[str, Change]] = {
    "a style beyond all measure": ("style", filled("style", 1e15)),
    "no style at all": ("style", filled("style", 0.0)),
    "whole numbers": ("style", lambda given: {"style": torch.ones(1, 1, 1, dtype=torch.uint8)}),
    "truth values": ("style", lambda given: {"style": torch.ones(1, 1, 1, dtype=torch.bool)}),
    "in double": ("style", lambda given: {"style": given["style"].double()}),
    "a model beyond all measure": (
        "adapt",
        lambda given: {"f": {n: torch.full_like(w, 1e15) if w.is_floating_point() else w for n, w in given["f"].items()}},
    ),
    "rows beyond all measure": ("adapt", lambda given: {"samples": 10**15}),
}


def in_phase(method: str, phase: str, **config: Any) -> tuple[Any, Any, Any]:
    """A run in which a phase is open, and bert's order."""
    return open_round(open_federation(), experiment(method, ROSTER, world=WORLD, config={"rounds": 2, **config}), phase, BERT)


@pytest.mark.parametrize(("phase", "change"), tier_params(ADMITTED, "a style beyond all measure", "a model beyond all measure"))
def test_a_reply_that_is_taken_can_be_folded(phase: str, change: Change) -> None:
    """The round closes, and the run has not failed. A style that lies leads no source astray either."""
    stage, run, order = in_phase("ladd", phase, style_transfer=True)
    assert reported(stage, run, order, BERT, change).verdict == "accepted"
    row = stage.play(run, None if phase == "style" else lambda orders: [o for o in orders if o.cursor == order.cursor])
    closed = next(r for r in stage.journal.rounds(run) if r.cursor == order.cursor)
    assert BERT in closed.folded and row.status.value != "failed", row.cause
    assert phase == "adapt" or row.status.value == "completed", row.cause
    assert stage.journal.order(order.id).status is OrderStatus.ANSWERED


@pytest.mark.parametrize("method", ["ladd_pl", *night_params("ladd")])
@pytest.mark.parametrize("transfer", [True, *night_params(False)])
@pytest.mark.parametrize("roster", [ROSTER, dict.fromkeys(TARGETS, "target")], ids=["source", "no source"])
def test_weights_take_the_place_of_a_source(method: str, transfer: bool, roster: dict[str, str]) -> None:
    """Styles are told and clusters made; where a transfer was asked for and there is no source the run says so."""
    at = Federation(METHODS, {name: replace(site(name), policy=EVERYTHING) for name in roster})
    torch.manual_seed(3)
    digest = at.bring([save(nets.weights_of(nets.build(parse(World, WORLD))))])
    config = {"style_transfer": transfer, "rounds": 1}
    run = at.start({**experiment(method, roster, world=WORLD, config=config), "weights": digest})
    result = at.run(run)
    assert result["status"] == "completed", result["cause"]
    assert result["groups"]["last"] == {"cluster 1": ["bert", "carl"], "cluster 2": ["dora", "emil"]}
    unused = transfer and "anna" not in roster
    assert [NOTE in note for note in result["notes"]] == [True] * unused
