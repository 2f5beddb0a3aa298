"""Robust folds in federated averaging: what is folded, what is refused, what the run says, and what wrong sites can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.algorithms.lies import night_params
from tests.laws.stage import HoardingParts, Stage, registered
from tests.laws.values import like
from tests.synthetic import NAMES, experiment, sites
from tideline.algorithms.averaging import fedavg, fedprox
from tideline.algorithms.averaging.folds import RULES
from tideline.algorithms.averaging.messages import State, Update
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.core.algorithm import Algorithm, contract
from tideline.core.privacy import contract_digest
from tideline.core.step import Outcome, Site
from tideline.numerics.aggregation import robust

CROWD = dict.fromkeys(NAMES, "source")
GIVEN: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "clip": {"robust": "clip"},
    **{rule: {"robust": rule, "byzantine": 1} for rule in RULES[2:]},
}
every = pytest.mark.parametrize("rule", RULES)


def played(rule: str, algorithm: Algorithm = fedavg, **config: Any) -> tuple[Stage, Any]:
    """One finished run of five teachers."""
    stage = Stage(registered(algorithm), sites(NAMES), parts=HoardingParts())
    run = stage.start(experiment(algorithm.name, CROWD, config={**GIVEN[rule], **config}))
    assert stage.play(run).status.value == "completed", stage.row(run).cause
    return stage, run


def folded(stage: Stage, run: Any, cursor: int) -> tuple[dict[str, Update], State, State]:
    """A round of training: its replies, and the states before and after."""
    states = [decode(State, r.state[0][0], stage.parts, LAX) for r in stage.journal.rounds(run)]
    orders = stage.journal.orders(run, cursor)
    replies = {o.client: decode(Update, o.reply[0][0], stage.parts, like(states[0])) for o in orders}
    return replies, states[cursor], states[cursor + 1]


def marks(stage: Stage, run: Any) -> list[dict[str, list[str]]]:
    """What was done with single sites, a training round each."""
    return [phase["marks"] for phase in stage.result(run)["phases"] if phase["name"] == "train"]


def lying(algorithm: Algorithm, liars: tuple[str, ...], scale: float) -> Algorithm:
    """The method, some of whose sites send w + scale (w_i - w)."""

    def plan(c: Any) -> Any:
        return tuple(
            replace(p, step=replace(p.step, run=lied(p.step.run))) if p.name == "train" else p for p in algorithm.plan(c)
        )

    def lied(run: Any) -> Any:
        def train(order: Any, memory: Any, site: Site) -> Outcome[Update, Any]:
            honest = run(order, memory, site)
            if site.me not in liars:
                return honest  # type: ignore[no-any-return]
            model = {k: order.model[k] + (v - order.model[k]) * scale for k, v in honest.message.model.items()}
            return replace(honest, message=Update(model, honest.message.samples))

        return train

    return replace(algorithm, plan=plan)


@every
def test_the_new_model_is_what_the_rule_makes_of_the_replies(rule: str) -> None:
    """Read back from the archive and folded again, bit for bit; the marks of each round name the same sites."""
    stage, run = played(rule, rounds=1)
    replies, before, after = folded(stage, run, 0)
    models = {name: reply.model for name, reply in replies.items()}
    chosen: dict[str, list[str]] = {}
    if rule == "none":
        n = sum(reply.samples for reply in replies.values())
        expected: Any = {k: sum(r.model[k].double() * (r.samples / n) for r in replies.values()).float() for k in after.model}
    elif rule == "clip":
        n = sum(reply.samples for reply in replies.values())
        expected, factors = robust.clip(before.model, models, {name: r.samples / n for name, r in replies.items()})
        chosen = {"clipped": [name for name in sorted(models) if factors[name] < 1]}
        assert len(chosen["clipped"]) == 2
    elif rule in ("median", "trimmed_mean"):
        expected = getattr(robust, rule)(models, 1)
    else:
        kept = [robust.krum(models, 1)] if rule == "krum" else list(robust.multi_krum(models, 1))
        expected = robust.trimmed_mean({name: models[name] for name in kept}, 0)
        chosen = {"chosen": kept, "left out": [name for name in sorted(models) if name not in kept]}
    for name, tensor in after.model.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-6 if rule == "none" else 0, atol=1e-7 if rule == "none" else 0)
    assert marks(stage, run) == [chosen]


def test_events_tell_of_marks_too() -> None:
    """Those who watch a run see whom Krum chose as the round closes; other rounds say nothing of it."""
    stage, run = played("krum", rounds=1)
    reported = {e.data["phase"]: e.data.get("marks") for e in stage.journal.events(run) if e.kind == "closed"}
    assert reported == {"join": None, "train": marks(stage, run)[0], "score": None}


@pytest.mark.parametrize("rule", ["krum", "multi_krum", "clip"])
def test_who_scales_up_is_left_out_or_shortened(rule: str) -> None:
    """A site that sends a hundred times its update: named in every round."""
    stage, run = played(rule, lying(fedavg, ("dora",), 100.0))
    word = "clipped" if rule == "clip" else "left out"
    assert len(marks(stage, run)) == 2 and all("dora" in each[word] for each in marks(stage, run))


@pytest.mark.parametrize(
    "rule", ["none", "krum", "median", *night_params(*(r for r in RULES if r not in ("none", "krum", "median")))]
)
def test_one_that_scales_up_harms_the_mean_alone(rule: str) -> None:
    """A thousandfold update in the wrong direction: the mean is lost, every rule still learns."""
    stage, run = played(rule, lying(fedavg, ("dora",), -1000.0), rounds=3)
    accuracy = sum(c["accuracy"] for c in stage.result(run)["clients"]) / 5
    assert accuracy < 0.6 if rule == "none" else accuracy > 0.8


def test_a_rule_that_changes_nothing_leaves_the_old_digest() -> None:
    """robust: none is federated averaging as it was, and so is a bound that nobody reaches."""
    digests = set()
    for config in ({}, {"robust": "none"}, {"robust": "clip", "clip_norm": 1e9}):
        stage, run = played("none", **config)
        digests.add(stage.row(run).state_digest)
        assert marks(stage, run) == [{}, {}]
        assert stage.row(run).spec.config["robust"] == config.get("robust", "none")
    assert len(digests) == 1


@every
def test_the_contract_is_the_same_under_every_rule(rule: str) -> None:
    """A rule is the coordinator's business: nothing more leaves a site."""
    for method in (fedavg, fedprox):
        reported = {contract_digest(contract(method, method.configure(given))) for given in (GIVEN[rule], {})}
        assert len(reported) == 1


def test_fedprox_folds_alike() -> None:
    """The family shares its folds; without its term FedProx ends in FedAvg's digest."""
    digests = {method.name: (run := played("krum", method))[0].row(run[1]).state_digest for method in (fedavg, replace(fedprox))}
    stage, run = played("krum", fedprox, mu=0.0)
    assert stage.row(run).state_digest == digests["fedavg"] != digests["fedprox"]
