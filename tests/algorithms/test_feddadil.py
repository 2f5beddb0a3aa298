"""FedDaDiL: what is asked of whom, what stays, what a target may know, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.laws.stage import HoardingParts, Stage
from tests.laws.values import raw
from tests.synthetic import CLASSES, FEATURES, IMAGES, Rows, blobs, experiment
from tideline.algorithms import METHODS
from tideline.algorithms.feddadil import Config, feddadil, server, target
from tideline.algorithms.feddadil.messages import Described, Mine, State
from tideline.archive.codec import LAX, decode
from tideline.core.algorithm import contract
from tideline.core.data import Data
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.phase import Replies, Turn
from tideline.core.privacy import Audience, Exposure
from tideline.core.run import ClientId, Member, Role, World
from tideline.engine.simulate import SimSite

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
ALREADY = {"world": {**FEATURES, "model": "linear"}}  # data that are features: no encoder
PLAIN = {"encoder_rounds": 0, "head_rounds": 0}
EVERYTHING = frozenset((e, a) for e in Exposure for a in Audience)


def site(domain: int, change: Any = lambda data: data, policy: Any = None) -> SimSite:
    """A site whose training rows a test may change."""
    rows = Rows(change(blobs(41, domain, 0)), blobs(60, domain, 1))
    made = SimSite(lambda world, role: rows)
    return made if policy is None else replace(made, policy=policy)


def federation(**changed: SimSite) -> Stage:
    """Three sites of three domains; none of their parts is forgotten."""
    sites = {name: site(i) for i, name in enumerate(ROSTER)}
    return Stage(METHODS, sites | changed, parts=HoardingParts())


def played(stage: Stage | None = None, given: Mapping[str, Any] | None = None, **config: Any) -> tuple[Stage, Any]:
    """One finished run."""
    stage = stage or federation()
    run = stage.start(experiment("feddadil", ROSTER, config=config, **(ALREADY if given is None else given)))
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    return stage, run


def memory(stage: Stage, run: Any, name: str) -> Mine:
    """What a site keeps at the end."""
    head = stage.vaults[ClientId(name)].head(run)
    assert head is not None
    return decode(Mine, head.memory[0][0], stage.vaults[ClientId(name)].parts(run), LAX)


def scored(stage: Stage, run: Any, name: str) -> Mapping[str, float]:
    """The metrics of a site's last answer."""
    *_, last = [o for o in stage.journal.orders(run) if o.client == name]
    return last.metrics


def phases(**config: Any) -> list[str]:
    """The names of a plan's phases."""
    return [phase.name for phase in feddadil.plan(Config(**config))]


# The plan


def test_the_plan_follows_the_paper() -> None:
    """Encode, embed, describe, learn, adapt, score; an adaptation every so many passes and after the last."""
    names = phases(rounds=5, adapt_every=2, encoder_rounds=2, head_rounds=1)
    learn = ["learn", "learn", "adapt", "learn", "learn", "adapt", "learn", "adapt"]
    assert names == ["encode", "encode", "embed", "describe", "head", *learn, "score"]


def test_encode_and_embed_vanish_for_features() -> None:
    """So does the head where nobody wants it; and normal atoms need no description."""
    assert phases(rounds=1, init="normal", **PLAIN) == ["learn", "adapt", "score"]


def test_passes_of_adaptation() -> None:
    """The last pass is always one of them, once."""
    assert target.passes(Config(rounds=6, adapt_every=3)) == (3, 6)
    assert target.passes(Config(rounds=2, adapt_every=9)) == (2,)


def test_every_row_of_table_5_is_a_preset() -> None:
    """Each can be configured, and says what the table says."""
    assert {"imageclef", "caltech_office10", "office31", "office_home", "adaptiope"} <= set(feddadil.presets)
    made = feddadil.configure({}, "office_home_e")
    assert (made.points, made.atoms, made.batch) == (1950, 2, 325)


# What stays


def test_no_reply_has_a_field_for_coordinates_features_or_labels() -> None:
    """The contract's whole list: weights of encoder and head, class moments, atoms."""
    told = {(c.step, c.field, c.exposure) for c in contract(feddadil, Config()) if not c.field.startswith("metrics.")}
    assert told == {
        ("train_encoder", "model", Exposure.WEIGHTS),
        ("slope", "weight", Exposure.WEIGHTS),
        ("slope", "bias", Exposure.WEIGHTS),
        ("slope", "curvature", Exposure.STATISTIC),
        ("describe", "rows", Exposure.COUNT),
        ("describe", "total_mean", Exposure.STATISTIC),
        ("describe", "total_variance", Exposure.STATISTIC),
        ("describe", "classes", Exposure.COUNT),
        ("describe", "count", Exposure.COUNT),
        ("describe", "mean", Exposure.STATISTIC),
        ("describe", "variance", Exposure.STATISTIC),
        ("learn", "z", Exposure.SYNTHETIC),
        ("learn", "y", Exposure.SYNTHETIC),
    }


@pytest.mark.parametrize("config", [{}, PLAIN, {"init": "normal", **PLAIN}])
def test_alpha_and_features_never_cross_the_link(config: dict[str, Any]) -> None:
    """No message, either way, holds the bytes or the digits of a coordinate or of a feature row that a site kept."""
    given = ALREADY if config else {}
    stage, run = played(given=given, atoms=5, **config)
    wire = stage.wire.all()
    for name in ROSTER:
        mine = memory(stage, run, name)
        uniform = torch.full((5,), 0.2)
        assert not torch.equal(mine.alpha, uniform), "a coordinate that never moved proves nothing"
        for form in (mine.alpha, mine.alpha.double(), mine.alpha.half()):
            assert raw(form) not in wire
        assert not any(repr(float(a)).encode() in wire for a in mine.alpha if float(a) not in (0.0, 1.0))
        assert not any(raw(row) in wire for row in mine.z)


def test_a_targets_labels_never_reach_training() -> None:
    """Other labels at the target, even wrong ones, change no byte of state, order, reply or memory."""

    def shuffled(data: Data) -> Data:
        return replace(data, y=data.y.flip(0) if data.y is not None else None)

    one, run_1 = played(given={})
    two, run_2 = played(federation(carl=site(2, shuffled)), given={})
    assert one.row(run_1).state_digest == two.row(run_2).state_digest
    assert one.memories(run_1) == two.memories(run_2)


def test_target_memory_has_no_labels() -> None:
    """Sources keep theirs, int64; a target has none."""
    stage, run = played()
    assert memory(stage, run, "anna").y.tolist() == blobs(41, 0, 0).y.tolist()  # type: ignore[union-attr]
    assert len(memory(stage, run, "carl").y) == 0


def test_the_line_must_be_allowed() -> None:
    """It shows two sites' atoms to all of them: refused under the default policy, told as five losses where it is allowed."""
    stage = federation()
    run = stage.start(experiment("feddadil", ROSTER, config={"line": True}, **ALREADY))
    assert stage.play(run).status.value == "stalled"
    assert "learn_shown sends z" in stage.row(run).cause
    open_sites = {name: site(i, policy=EVERYTHING) for i, name in enumerate(ROSTER)}
    stage, run = played(federation(**open_sites), line=True)
    walked = [o.metrics for o in stage.journal.orders(run) if "line_0" in o.metrics]
    assert len(walked) == 3
    for losses in walked:
        ends = max(losses["line_0"], losses["line_4"])
        assert losses["line_2"] <= ends * (1 + 1e-6)
    assert {c.audience for c in contract(feddadil, Config(line=True)) if c.step == "learn_shown" and "." not in c.field} == {
        frozenset(Audience)
    }


# What is computed


def test_several_targets_each_adapt() -> None:
    """Every target chooses for itself, from candidates of its own."""
    roster = {"anna": "source", "bert": "target", "carl": "target"}
    stage = federation()
    run = stage.start(experiment("feddadil", roster, **ALREADY))
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    for name in ("bert", "carl"):
        mine = memory(stage, run, name)
        assert {"r2", "e2"} <= mine.candidates.keys()
        assert mine.chosen in ("none", "committee")
        assert set(mine.evidence) == {"s", "rho"}


def test_scores_side_by_side() -> None:
    """At a target -R, -E, the choice, the oracle and the unadapted model; at a source the unadapted model alone."""
    stage, run = played(given={})
    told = scored(stage, run, "carl")
    assert {
        "accuracy",
        "accuracy_r",
        "accuracy_e",
        "accuracy_oracle",
        "accuracy_own",
        "source_only",
        "distilled_1",
    } <= told.keys()
    assert told["accuracy_oracle"] >= max(told["accuracy"], told["accuracy_r"], told["source_only"])
    assert set(scored(stage, run, "anna")) == {"accuracy", "source_only", "accuracy_own"}


@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
def test_half_the_bytes_on_the_wire(wire: str) -> None:
    """Atoms travel in the narrower type, both ways, and are computed with in float32."""
    wide, run_1 = played(rounds=1)
    narrow, run_2 = played(rounds=1, wire=wire)
    cursor = phases(rounds=1, encoder_rounds=1, head_rounds=1).index("learn")

    def sizes(stage: Stage, run: Any) -> tuple[int, int]:
        order = stage.journal.orders(run, cursor)[0]
        return order.bytes_down, order.bytes_up

    for big, small in zip(sizes(wide, run_1), sizes(narrow, run_2), strict=True):
        assert small < 0.75 * big
    last = narrow.journal.rounds(run_2)[-1]
    assert decode(State, last.state[0][0], narrow.parts, LAX).z.dtype == torch.float32


def test_points_are_rounded_up_to_as_many_for_each_class() -> None:
    """13 points for 3 classes become 15."""
    config, world = Config(points=13, encoder_rounds=0), World(inputs=(8,), classes=3, model="linear")
    state = server.begin(config, world, (), torch.Generator().manual_seed(0))
    assert state.z.shape == (3, 15, 8)
    assert torch.allclose(state.y.sum(-1), torch.ones(3, 15))
    assert state.y[0].argmax(-1).tolist() == [0] * 5 + [1] * 5 + [2] * 5


def described(present: list[int], shift: float) -> Described:
    """What a source with these classes tells."""
    classes = torch.tensor(present, dtype=torch.int64)
    mean = torch.full((len(present), 2), shift) + classes[:, None]
    told = (classes, torch.full((len(present),), 20), mean, torch.zeros(len(present), 2))
    return Described(20 * len(present), mean.mean(0), torch.ones(2), *told)


def test_first_atoms_come_from_one_source_each() -> None:
    """Atom k from source k; a class that this source lacks from all that have it; one that nobody has stays N(0, 1)."""
    world = World(inputs=(2,), classes=3, model="linear")
    config = Config(atoms=3, points=6, encoder_rounds=0)
    state = server.begin(config, world, (), torch.Generator().manual_seed(0))
    turn = Turn(config, world, (), 1, torch.Generator().manual_seed(1))
    told = {ClientId("a"): described([0, 1], 10.0), ClientId("b"): described([0], 20.0)}
    after = server.first_atoms(state, Replies({name: lambda each=each: each for name, each in told.items()}), turn)
    assert after.z[0, :4].tolist() == [[10.0] * 2] * 2 + [[11.0] * 2] * 2
    assert after.z[1, :2].tolist() == [[20.0] * 2] * 2
    assert after.z[1, 2:4].tolist() == [[11.0] * 2] * 2, "only a has class 1"
    assert after.z[2, :2].tolist() == [[10.0] * 2] * 2, "the sources take turns"
    assert torch.equal(after.z[:, 4:], state.z[:, 4:])


def test_few_rows_of_a_class_are_not_described() -> None:
    """Moments of nine rows would tell about single ones."""

    def thinned(data: Data) -> Data:
        assert data.y is not None
        kept = torch.cat([(data.y == 0).nonzero().flatten()[:9], (data.y != 0).nonzero().flatten()])
        return Data(data.x[kept], data.y[kept], data.domain[kept], data.domains)

    stage, run = played(federation(anna=site(0, thinned)))
    place = phases(rounds=1, encoder_rounds=1, head_rounds=1).index("describe")
    (order,) = [o for o in stage.journal.orders(run, place) if o.client == "anna"]
    told = decode(Described, order.reply[0][0], stage.parts, LAX)
    assert told.classes.tolist() == [1, 2]
    assert int(told.count.min()) >= 10


def test_memory_of_the_optimiser_lasts() -> None:
    """Adam's steps of all passes are counted; a restart of the site does not begin them anew."""
    stage, run = played(rounds=3)
    batches = 2  # 12 points in mini-batches of 6
    assert int(memory(stage, run, "carl").moments.alpha_steps) == 3 * batches


def test_what_the_owner_may_take() -> None:
    """At a target the classifier, the summaries and a picture; at a source nothing. All finite, labels on the simplex."""
    stage, run = played(given={}, distil=[1, 2])
    config = feddadil.configure(stage.row(run).spec["config"])
    assert feddadil.keepsakes(config, memory(stage, run, "anna")) == {}
    taken = feddadil.keepsakes(config, memory(stage, run, "carl"))
    assert set(taken) == {"summary_1", "summary_2", "classifier", "picture"}
    assert taken["summary_2"]["x"].shape[0] == 2 * CLASSES
    assert torch.allclose(taken["summary_2"]["soft"].sum(1), torch.ones(2 * CLASSES))
    assert taken["picture"]["site"].shape == (41, 2)
    assert all(bool(torch.isfinite(a.float()).all()) for arrays in taken.values() for a in arrays.values())


def test_the_linear_layers_are_those_of_all_rows_together() -> None:
    """Descent on averaged gradients ends where a fit on all sources' rows, which nobody could make, ends; so does the fit that
    weighs sites alike."""
    sites = {name: site(i, few(n)) for i, (name, n) in enumerate(zip(ROSTER, (41, 14, 41), strict=True))}
    stage, run = played(federation(**sites), head_rounds=300, encoder_rounds=0, rounds=1)
    state = decode(State, stage.journal.rounds(run)[-1].state[0][0], stage.parts, LAX)
    data = [few(41)(blobs(41, 0, 0)), few(14)(blobs(41, 1, 0))]
    x, y = torch.cat([d.x for d in data]), torch.cat([d.y for d in data])
    heads = state.heads
    variance = x.var(0, unbiased=False)
    assert torch.allclose(heads.shift, x.mean(0), atol=1e-5)
    assert torch.allclose(heads.stretch, (variance + 0.01 * variance.mean()).sqrt(), atol=1e-4)
    assert heads.decay == pytest.approx(8 / 55)
    z = (x - heads.shift) / heads.stretch
    for layer, weight in enumerate((torch.full((55,), 1 / 55), torch.cat([torch.full((n,), 1 / n / 2) for n in (41, 14)]))):
        W, b = heads.weight[layer].clone().requires_grad_(), heads.bias[layer].clone().requires_grad_()
        loss = weight @ torch.nn.functional.cross_entropy(z @ W.mT + b, y, reduction="none") + heads.decay / 2 * W.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        assert W.grad is not None and b.grad is not None
        assert float(W.grad.abs().max()) < 1e-4, "the gradient vanishes at the minimum"
        assert float(b.grad.abs().max()) < 1e-4


PLAIN_LABELS = [0, 0, 1, 1, 1]
GUESS = {"none": PLAIN_LABELS, "committee": [0, 0, 0, 1, 1], "rows": PLAIN_LABELS, "sites": PLAIN_LABELS}


def chosen(z: list[float], settings: Config, **labels: list[int]) -> tuple[str, Mapping[str, float]]:
    """The choice among guesses of these labels, for rows at these places of a line."""
    guess = {name: torch.eye(2)[torch.tensor(each)] for name, each in (GUESS | labels).items()}
    return target.choice(guess, torch.tensor(z)[:, None], settings)


def test_the_guard_trusts_what_does_not_hinge_on_weighing() -> None:
    """Equal labels under both weighings: the committee. Other labels, and neighbours that disagree with it: no adaptation."""
    guard = Config(neighbours=1)
    near_its_old_label = [0.0, 0.1, 5.0, 5.03, 5.1]
    assert chosen(near_its_old_label, guard)[0] == "committee"
    name, found = chosen(near_its_old_label, guard, sites=[0, 1, 1, 1, 1])
    assert (name, found["s"]) == ("none", 0.2)
    assert found["rho"] < 0


def test_the_guard_trusts_neighbours() -> None:
    """Where it hinges, the committee must agree better with the neighbours of what it changed."""
    near_its_new_label = [0.0, 0.1, 0.25, 5.0, 5.1]
    name, found = chosen(near_its_new_label, Config(neighbours=1), sites=[0, 1, 1, 1, 1])
    assert name == "committee"
    assert found["rho"] >= 0.2


@pytest.mark.parametrize("choice", ["none", "own", "r", "e", "committee"])
def test_a_choice_can_be_fixed(choice: str) -> None:
    """Then no evidence is looked for, and that prediction is scored."""
    stage, run = played(choice=choice)
    assert (memory(stage, run, "carl").chosen, memory(stage, run, "carl").evidence) == (choice, {})


def test_only_the_last_passes_are_averaged() -> None:
    """Three adaptations are kept of five."""
    stage, run = played(rounds=5, adapt_every=1, points=6)
    assert sorted(memory(stage, run, "carl").candidates) == ["e3", "e4", "e5", "r3", "r4", "r5"]


def test_the_exported_classifier_predicts_what_the_site_predicts() -> None:
    """Its arrays alone, as the page explains them, give the chosen prediction."""
    for choice in ("none", "own", "r", "e", "committee"):
        stage, run = played(choice=choice, encoder_rounds=0)
        config, mine = feddadil.configure(stage.row(run).spec["config"]), memory(stage, run, "carl")
        a = feddadil.keepsakes(config, mine)["classifier"]
        z, total = mine.z, torch.zeros(len(mine.z), CLASSES)
        own = (z - a["shift"]) / a["stretch"]
        own = own / own.square().mean(1, keepdim=True).sqrt()
        for scale, x in (("own", own), ("common", (z - a.get("common_shift", 0)) / a.get("common_stretch", 1))):
            for share, W, b in zip(*(a.get(f"{scale}_{part}", ()) for part in ("share", "weight", "bias")), strict=True):
                total += share * (x @ W.mT + b).softmax(1)
        expected = target.guesses(mine, mine.heads, mine.z, mine.guess, config)[choice]
        assert torch.allclose(total, expected, atol=1e-5), choice


# What is refused


def member(name: str, role: Role, labelled: bool = True) -> Member:
    """A member of a roster."""
    return Member(ClientId(name), role, labelled)


@pytest.mark.parametrize(
    ("roster", "lacks"),
    [
        ((member("t", Role.TARGET, False),), "source with labels"),
        ((member("s", Role.SOURCE, False), member("t", Role.TARGET, False)), "source with labels"),
        ((member("s", Role.SOURCE),), "target"),
    ],
)
def test_a_roster_without_teacher_or_pupil(roster: tuple[Member, ...], lacks: str) -> None:
    """Both are needed, and who is there is said."""
    with pytest.raises(RosterRefused, match=f"at least one {lacks}; the roster has {roster[0].id}"):
        server.needs_both(Config(), World(), roster)


def test_images_without_an_encoder() -> None:
    """No features would come of them."""
    both = (member("s", Role.SOURCE), member("t", Role.TARGET, False))
    with pytest.raises(ConfigRefused, match="encoder_rounds is 0") as told:
        server.needs_both(Config(encoder_rounds=0), World(), both)
    assert told.value.context["path"] == "config.encoder_rounds"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"atoms": 0}, "atoms is 0; it should be at least 1"),
        ({"points": 0}, "points is 0"),
        ({"batch": 0}, "batch is 0"),
        ({"optimiser": "adamw"}, "adam, rows, sgd"),
        ({"wire": "int8"}, "float32, float16, bfloat16"),
        ({"distil": [0]}, r"distil\[0\] is 0"),
    ],
)
def test_settings_out_of_range(wrong: dict[str, Any], words: str) -> None:
    """The setting, the bound and the value are named."""
    with pytest.raises(ConfigRefused, match=words):
        feddadil.configure(wrong)


def test_fewer_points_than_classes() -> None:
    """Every class gets a point: one is the least."""
    assert server.begin(
        Config(points=1, encoder_rounds=0), World(inputs=(2,), classes=7, model="linear"), (), torch.Generator()
    ).z.shape == (3, 7, 2)


def few(n: int) -> Any:
    """The first rows only."""
    return lambda data: Data(data.x[:n], data.y[:n], data.domain[:n], data.domains)


def test_a_site_with_fewer_rows_than_a_mini_batch() -> None:
    """Rows are drawn with replacement: four do."""
    stage, _ = played(federation(anna=site(0, few(4)), carl=site(2, few(4))), points=30, batch=15)
    assert stage


def test_a_source_without_a_class() -> None:
    """It draws from the classes that it has; the atoms keep all of them."""

    def without(data: Data) -> Data:
        assert data.y is not None
        kept = data.y != 2
        return Data(data.x[kept], data.y[kept], data.domain[kept], data.domains)

    stage, run = played(federation(anna=site(0, without)))
    last = decode(State, stage.journal.rounds(run)[-1].state[0][0], stage.parts, LAX)
    assert set(last.y[0].argmax(-1).tolist()) == {0, 1, 2}


def test_features_that_are_not_finite() -> None:
    """The site is named, its step fails, and the run says so."""

    def broken(data: Data) -> Data:
        x = data.x.clone()
        x[3, 1] = float("inf")
        return replace(data, x=x)

    stage = federation(bert=site(1, broken))
    run = stage.start(experiment("feddadil", ROSTER, config=PLAIN, **ALREADY))
    row = stage.play(run)
    assert row.status.value == "stalled"
    assert "The features of bert are not finite" in row.cause


def test_images_are_encoded_first() -> None:
    """On images the encoder's features are what the atoms live among."""
    sites = {
        n: SimSite(lambda w, r, i=i: Rows(blobs(41, i, 0, w.inputs), blobs(60, i, 1, w.inputs))) for i, n in enumerate(ROSTER)
    }
    stage = Stage(METHODS, sites, parts=HoardingParts())
    run = stage.start(experiment("feddadil", ROSTER, world=dict(IMAGES)))
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    assert memory(stage, run, "carl").z.shape == (41, 128)


def test_a_rounded_number_is_told() -> None:
    """Before anything starts, and in the result: which setting, what was asked, what it becomes."""
    stage, run = played(points=13)
    assert stage.row(run).spec["notes"] == [
        "config.points is 13; it is rounded up to 15, so that each of the 3 classes has as many"
    ]
    assert feddadil.notes(Config(points=200, batch=100), World()) == ()


def test_many_local_epochs_at_a_large_step_are_told() -> None:
    """One epoch, or a small step, is as the method is meant."""
    (note,) = feddadil.notes(Config(epochs=5), World())
    assert "config.epochs is 5 at a rate of 0.3" in note
    assert feddadil.notes(Config(epochs=5, rate=0.1), World()) == ()


def test_no_class_is_described_where_atoms_are_normal() -> None:
    """The linear layers need moments of the whole site alone."""
    stage, run = played(init="normal")
    place = phases(rounds=1, encoder_rounds=1, init="normal").index("describe")
    for order in stage.journal.orders(run, place):
        assert len(decode(Described, order.reply[0][0], stage.parts, LAX).classes) == 0
