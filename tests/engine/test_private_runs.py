"""Runs that protect rows: what they cost, what is refused, what leaves, and that the noise is the site's own and lasting."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.engine.present import present
from tests.engine.test_augmented import told
from tests.laws.stage import Stage, ready
from tests.synthetic import FEATURES, experiment, sites
from tideline.algorithms import METHODS
from tideline.algorithms.averaging import fedavg
from tideline.algorithms.source_free import shot
from tideline.core.asked.private import Charge, Meter, Privacy, together
from tideline.core.errors import ConfigRefused, Malformed, PolicyRefused, StepFailed
from tideline.core.record import Nothing
from tideline.core.run import Role
from tideline.core.step import Outcome
from tideline.engine.compute.configured import Configured
from tideline.engine.compute.private.metering import charges, cost, in_private, with_noise
from tideline.engine.model.brief import brief_of
from tideline.engine.simulation.federation import Federation
from tideline.engine.site.admission import brief_in_words, facts_of, intent_digest
from tideline.engine.site.charging import noise_key
from tideline.engine.site.rules import FREE, Least
from tideline.learning.fit import check_least, cross_entropy
from tideline.learning.private import row_gradients
from tideline.learning.private.gradients import flat

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
NOISE = {"rows": 20, "noise": 2.0, "delta": 1e-3, "rate": 0.5}
WORLD = {**FEATURES, "normalise": "none"}


def asked(method: str = "fedavg", privacy: Mapping[str, Any] | None = NOISE, **more: Any) -> dict[str, Any]:
    given = {**experiment(method, ROSTER), "world": dict(WORLD), **more}
    return given if privacy is None else {**given, "privacy": dict(privacy)}


def test_a_private_run_completes_and_says_what_it_costs() -> None:
    """In a note, in the contract in words, and in what its settings say."""
    stage = Stage(METHODS, sites())
    row = stage.play(stage.start(asked()))
    assert row.status == "completed", row.cause
    assert any("each row of a site is protected: epsilon" in each for each in row.spec.notes)
    clauses = {each.field: each for each in row.contract}
    assert set(clauses) == {"model", "samples", "metrics.accuracy", "metrics.source_only"}
    assert all(each.private for each in clauses.values())
    assert "from clipped gradients with noise" in clauses["model"].sentence()


def test_nothing_leaves_that_was_not_charged() -> None:
    """No loss, no number of rows, no counts by class: the words of each reply are looked at."""
    stage = Stage(METHODS, sites())
    run = stage.start(asked())
    stage.play(run)
    names = {name for _, cursor, words in stage.wire.words for name in metrics_in(words)}
    assert names <= {"accuracy", "source_only"}
    found = stage.result(run)["privacy"]
    assert found["noise"] == 2.0 and found["epsilon"] > 0


def metrics_in(words: str) -> list[str]:
    return list(json.loads(words)[0])


def test_sites_of_another_process_add_other_noise() -> None:
    """Two federations of the same seed come to other bytes; without privacy they come to the same."""
    ends = []
    for privacy in (NOISE, NOISE, None, None):
        federation = Federation(METHODS, sites())
        run = federation.start(asked(privacy=privacy))
        assert federation.run(run)["status"] == "completed"
        ends.append(federation.journal.run(run).state_digest)  # type: ignore[union-attr]
    assert ends[0] != ends[1] and ends[2] == ends[3]


def test_an_order_that_comes_again_gets_the_same_noise() -> None:
    """Also where the site has forgotten that it answered, and was started anew: a second noise would tell more."""
    stage = Stage(METHODS, sites())
    run = stage.start(asked())
    for order in stage.waiting():
        stage.handle(order)
    stage.scheduler.turn(run)
    order = next(each for each in stage.waiting() if each.step == "train")
    row = present(stage.journal.order(order.id))
    before = stage.vaults[row.client].head(run)
    first = ready(stage.agents[row.client], order)
    stage.vaults[row.client].restore(run, before)
    stage.rebuild()
    assert ready(stage.agents[row.client], order).reply == first.reply
    stage.vaults[row.client].restore(run, before)
    other = stage.agents[row.client]
    other.secret = lambda: b"o" * 32
    assert ready(other, order).reply != first.reply, "the noise is of the site's secret"


def test_the_key_of_the_noise_goes_with_all_that_is_asked() -> None:
    """The same order again: the same key. Another message, place, seed or setting: another."""
    stage = Stage(METHODS, sites())
    stage.start(asked())
    order, brief = next(iter(stage.waiting())), told(stage)
    key = noise_key(b"s" * 32, order, brief)
    assert key == noise_key(b"s" * 32, replace(order, id="other"), brief) and len(bytes.fromhex(key)) == 32
    other = [
        noise_key(b"t" * 32, order, brief),
        noise_key(b"s" * 32, replace(order, cursor=order.cursor + 1), brief),
        noise_key(b"s" * 32, replace(order, seed=order.seed + 1), brief),
        noise_key(b"s" * 32, replace(order, files=((("b3-" + "0" * 64), 1),)), brief),
        noise_key(b"s" * 32, order, replace(brief, privacy=replace(brief.privacy, clip=9.0))),
    ]
    assert len({key, *other}) == 6


def test_it_reaches_the_site() -> None:
    """With the brief of runs that ask for it alone; its owner reads it, and approves another intent."""
    on, off = Stage(METHODS, sites()), Stage(METHODS, sites())
    on.start(asked())
    plain_run = off.start(asked(privacy=None))
    assert "privacy" not in brief_of(off.row(plain_run), Role.SOURCE)
    brief, plain = told(on), told(off)
    assert brief.privacy.noise == 2.0 and plain.privacy is None
    assert any(line.startswith("rows are protected: rows: 20") for line in brief_in_words(brief))
    assert facts_of(brief)["privacy"]["noise"] == 2.0 and "privacy" not in facts_of(plain)  # type: ignore[call-overload, index]
    assert intent_digest(brief) != intent_digest(replace(brief, privacy=None))
    with pytest.raises(Malformed, match="its privacy is missing or wrong"):
        told(on, privacy=["noise"])


@pytest.mark.parametrize(
    ("privacy", "path", "said"),
    [
        ({"rows": 20}, "privacy.epsilon", "neither epsilon nor noise"),
        ({"rows": 20, "epsilon": 1.0, "noise": 1.0}, "privacy.epsilon", "both epsilon and noise"),
        ({"rows": 20, "epsilon": 0.0}, "privacy.epsilon", "more than 0"),
        ({"rows": 20, "epsilon": float("inf")}, "privacy.epsilon", "finite"),
        ({"rows": 20, "epsilon": -1.0}, "privacy.epsilon", "more than 0"),
        ({"rows": 20, "epsilon": float("-inf")}, "privacy.epsilon", "finite"),
        ({"rows": 20, "epsilon": float("nan")}, "privacy.epsilon", "finite"),
        ({"rows": 20, "noise": 0.0}, "privacy.noise", "at least 0.01"),
        ({"rows": 20, "noise": -1.0}, "privacy.noise", "at least 0.01"),
        ({"rows": 20, "noise": float("inf")}, "privacy.noise", "finite"),
        ({"rows": 20, "noise": 1.0, "clip": 0.0}, "privacy.clip", "at least"),
        ({"rows": 20, "epsilon": 1.0, "delta": -1e-5}, "privacy.delta", "more than 0"),
        ({"rows": 20, "epsilon": 1.0, "delta": 0.05}, "privacy.delta", "less than 1 / rows"),
        ({"rows": 20, "epsilon": 1.0, "delta": 0.0}, "privacy.delta", "more than 0"),
        ({"epsilon": 1.0}, "privacy.rows", "is missing"),
        ({"rows": 1, "epsilon": 1.0}, "privacy.rows", "at least 2"),
        ({"rows": 20, "noise": 1.0, "rate": 1.5}, "privacy.rate", "at most 1"),
        ({"rows": 20, "epsilon": 0.01, "delta": 1e-3}, "privacy.epsilon", "scorings alone cost"),
        ({"rows": 20, "noise": 5000.0}, "privacy.noise", "noise of 5000 clips, and 4096"),
        ({"rows": 20, "noise": 1000.0, "quantile": 0.5, "quantile_noise": 1.01}, "privacy.noise", "clips, and 4096"),
        pytest.param(
            *({"rows": 20, "epsilon": 3e-4, "delta": 1e-9, "score_noise": 1e6}, "privacy.epsilon", "clips, and 4096"),
            marks=pytest.mark.nightly(job="services"),
        ),
    ],
)
def test_numbers_that_protect_nothing(privacy: Mapping[str, Any], path: str, said: str) -> None:
    with pytest.raises(ConfigRefused) as raised:
        Stage(METHODS, sites()).start(asked(privacy=privacy))
    assert raised.value.context["path"] == path and raised.value.todo and said in str(raised.value)


@pytest.mark.parametrize(
    ("given", "path", "said"),
    [
        (asked("feddadil"), "privacy", "Use one of: .*fedavg"),
        (asked(world={**FEATURES, "normalise": "shared"}), "world.normalise", "statistics of rows"),
        (asked(world={**FEATURES, "normalise": "site"}), "world.normalise", "statistics of rows"),
        (asked(selection="accuracy"), "selection", "best round"),
        (asked(prior="em"), "prior", "shares of classes"),
        (asked(reference={"method": "central"}), "reference", "learn of the same rows"),
        (asked(rehearse={"candidates": ["adabn"]}), "rehearse", "learn of the same rows"),
        (asked(config={"patience": 2}), "config.patience", "nothing is charged"),
        (asked(config={"class_weights": "balanced"}), "config.class_weights", "nothing is charged"),
        (asked(config={"confidence": True}), "privacy", "its exchange score reads rows"),
        (asked(config={"confusion": True}), "privacy", "its exchange confusion reads rows"),
        (asked("hfedf", config={"embeddings": "autoencoder"}), "privacy", "its exchange embed reads rows"),
        (asked("central"), "privacy", "rows themselves leave their sites"),
    ],
)
def test_what_has_no_price_is_refused(given: Mapping[str, Any], path: str, said: str) -> None:
    """Before anybody is asked, with what to do."""
    with pytest.raises(ConfigRefused, match=said) as raised:
        Stage(METHODS, sites()).start(given)
    assert raised.value.context["path"] == path and raised.value.todo


def configured(**config: Any) -> Configured:
    return Configured(fedavg, fedavg.configure({"rounds": 3, **config}))


def test_a_run_costs_what_its_exchanges_cost() -> None:
    """Rounds of training, each of epochs / rate steps, and a scoring each."""
    privacy = Privacy(rows=100, noise=2.0, rate=0.1)
    found = charges(configured(epochs=2).plan, configured(epochs=2).config, privacy, Role.SOURCE)
    assert found == together([Charge(2.0, 0.1, 60), Charge(8.0, 1.0, 3)])
    fewer = configured(epochs=2, evaluate_every=3)
    assert cost(fewer, privacy) < cost(configured(epochs=2), privacy) < cost(configured(epochs=4), privacy)


def test_a_site_pays_for_what_its_role_is_asked_alone() -> None:
    """Sources of a model that targets adapt pay for teaching it; the run costs what the role that pays most does."""
    config = shot.configure({"rounds": 2, "epochs": 1, "source_rounds": 3, "source_epochs": 2, "labels": "predicted"})
    method, privacy = Configured(shot, config), Privacy(rows=100, noise=2.0, rate=0.5)
    by_role = {role: charges(method.plan, config, privacy, role) for role in Role}
    assert by_role[Role.SOURCE] == together([Charge(2.0, 0.5, 12)])
    assert by_role[Role.TARGET] == together([Charge(2.0, 0.5, 4), Charge(2.0 / 0.5**0.5, 1.0, 2), Charge(8.0, 1.0, 3)])
    assert by_role[Role.PEER] == ()
    each = [cost(replace(method, algorithm=replace(shot, plan=plan_for(role))), privacy) for role in by_role]
    assert cost(method, privacy) == max(each) > 0


def plan_for(role: Role) -> Callable[[Any], Any]:
    return lambda config: tuple(phase for phase in shot.plan(config) if role in phase.asks)


def test_a_model_that_never_leaves_and_is_not_scored_costs_nothing() -> None:
    """Its site learns without noise. All that is told is what the source model scores."""
    config = shot.configure({"rounds": 2, "score_own": False})
    method, privacy = Configured(shot, config), Privacy(rows=100, noise=2.0, rate=0.5)
    assert charges(method.plan, config, privacy, Role.TARGET) == (Charge(8.0),)
    stage = Stage(METHODS, sites())
    run = stage.start(asked("shot", preset="tiny", config={"score_own": False, "epochs": 20, "rounds": 3}))
    row = stage.play(run)
    assert row.status == "completed", row.cause
    assert {each.field for each in row.contract} == {"f", "g", "samples", "metrics.source_only"}
    spent = {each["name"]: each["epsilon"] for each in stage.result(run)["clients"]}
    assert spent["carl"] < spent["anna"]


@pytest.mark.nightly(job="services")
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_noise_of_an_epsilon_costs_no_more(epsilon: float) -> None:
    method = configured(evaluate_every=3)
    made = with_noise(method, Privacy(rows=200, epsilon=epsilon, score_noise=10.0))
    assert 0.98 * epsilon < cost(method, made) <= epsilon


def spending(*spent: Charge) -> Callable[[Any, Privacy], tuple[Charge, ...]]:
    return lambda config, privacy: spent


@pytest.mark.parametrize("spent", [(), (Charge(1.0),), (Charge(2.0), Charge(2.0)), (Charge(2.0), Charge(3.0, 0.1))])
def test_a_step_that_spends_otherwise_than_it_says_fails(spent: tuple[Charge, ...]) -> None:
    """More, less, or something else: nothing of it leaves."""
    step = next(phase.step for phase in configured().plan if phase.step)
    step = replace(step, spends=spending(Charge(2.0)), reports=("loss",))
    meter = Meter(Privacy(rows=10, noise=2.0, delta=1e-3), b"k" * 32)
    for each in spent:
        meter.spend(each)
    outcome: Outcome[Any, Any] = Outcome(Nothing(), Nothing(), {"loss": 1.0, "samples": 3.0})
    with pytest.raises(StepFailed, match="and says that it spends"):
        in_private(step, outcome, meter, configured().config)
    exact = Meter(meter.asked, b"k" * 32)
    exact.spend(Charge(2.0))
    assert in_private(step, outcome, exact, configured().config).metrics == {"loss": 1.0}
    with pytest.raises(StepFailed, match="does not say"):
        in_private(replace(step, spends=None), outcome, exact, configured().config)


def test_each_charge_has_a_key_of_its_own() -> None:
    meter = Meter(Privacy(rows=10, noise=2.0, delta=1e-3), b"k" * 32)
    keys = [meter.spend(Charge(2.0)) for _ in range(50)]
    assert len(set(keys)) == 50 and {len(key) for key in keys} == {32}
    again = Meter(meter.asked, b"k" * 32)
    assert again.spend(Charge(9.0)) == keys[0], "the place of a charge decides, so that a step that is run again is the same"


def test_a_site_with_fewer_rows_than_its_owner_wants_is_refused_without_their_number() -> None:
    """Before any work; what the owner wrote is said, and no count of rows."""
    given = sites()
    given["anna"] = replace(given["anna"], rules=replace(FREE, least=Least(rows=100)))
    stage = Stage(METHODS, given)
    row = stage.play(stage.start(asked()))
    assert row.status == "stalled" and "fewer than 100 training rows" in row.cause
    assert not re.search(r"\b41\b", " ".join(words for _, _, words in stage.wire.words)), "rows that it has"
    with pytest.raises(PolicyRefused) as told:
        check_least(41, 100, counted=False)
    assert not re.search(r"\b41\b", str(told.value)) and "fewer than 100" in str(told.value)


class Centred(nn.Module):
    """A network of somebody's own that mixes rows by hand, where no layer shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(x - x.mean(0, keepdim=True) / 2)
        return found


def test_a_network_that_mixes_rows_by_hand_sees_each_alone() -> None:
    """Each row's gradient is made of that row as a batch of its own, and so is its loss: nothing is there to be mixed."""
    net = Centred()
    gradients = row_gradients(net, cross_entropy)
    parameters = {name: p.detach() for name, p in net.named_parameters()}
    x, y = torch.randn(6, 4), torch.arange(6) % 3
    together, alone = gradients(parameters, x, y), gradients(parameters, x[:1], y[:1])
    assert all(torch.allclose(flat(together[name])[:1], flat(alone[name]), atol=1e-6) for name in parameters)
