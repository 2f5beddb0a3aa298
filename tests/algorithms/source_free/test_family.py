"""The source-free family: the source model, also one that is brought as a file, SHOT alone and under averaging."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import save

from tests.algorithms.compare import same
from tests.algorithms.lies import night_params
from tests.algorithms.source_free.played import ROSTER, WAITING, away, federation, mine, played, sent, site, states
from tests.synthetic import FEATURES, IMAGES, experiment
from tideline.algorithms import METHODS
from tideline.algorithms.source_free.family import Model
from tideline.core.algorithm import resolve
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.numerics.aggregation.averaging import weighted_sum

FAMILY = ("source_model", "shot", "fedavg_shot", "fedprox_pl", "fedamp_pl", "ifca_pl", "fedwca")
ADAPTING = FAMILY[1:]
QUICK = ("shot", "fedavg_shot", "fedwca")  # those that others are built on, and the one with most phases


@pytest.mark.parametrize("method", [*QUICK, *night_params(*(name for name in FAMILY if name not in QUICK))])
def test_the_classifier_never_changes(method: str) -> None:
    """g at the end, at the coordinator and at every target, has the bytes that the source sent, which then leaves."""
    stage, run = played(method)
    ((_, taught),) = sent(stage, run, "source").values()
    assert same(dict(states(stage, run, resolve(METHODS, method).state)[-1].g), dict(taught.g))
    for name in ("bert", "emil"):
        assert same(dict(mine(stage, run, name).g), dict(taught.g))
    assert [o.cursor for o in stage.journal.orders(run) if o.client == "anna" and o.cursor >= 0] == [0]
    assert all(c["source_only"] is not None for c in stage.result(run)["clients"] if c["role"] == "target")


@pytest.mark.parametrize("method", [ADAPTING[0], *night_params(*ADAPTING[1:])])
def test_only_the_feature_extractor_moves_and_helps(method: str) -> None:
    """Each target's own model differs from the source's in f, and recognises at least as much of the far domain."""
    stage, run = played(method, rounds=6, epochs=2)
    ((_, taught),) = sent(stage, run, "source").values()
    assert not same(dict(mine(stage, run, "dora").f), dict(taught.f))
    far = [c for c in stage.result(run)["clients"] if c["name"] in ("dora", "emil")]
    assert sum(c["accuracy"] - c["source_only"] for c in far) >= 0


def test_no_rounds_leave_the_source_model() -> None:
    """With rounds: 0 every method of the family is the source model."""
    for method in (*ADAPTING, "ladd", "ladd_pl"):
        stage, run = played(method, more={"world": {**IMAGES, "model": "lenet_bn"}} if "ladd" in method else {}, rounds=0)
        assert {c["accuracy"] - c["source_only"] for c in stage.result(run)["clients"] if c["role"] == "target"} == {0.0}


def test_two_sources_are_averaged_by_their_rows() -> None:
    """h_S is the mean of what two sources send, by their numbers of rows."""
    stage = federation(bert=site("bert", 20))
    roster = {**ROSTER, "bert": "source"}
    stage, run = played("source_model", stage, more={"roster": roster})
    (_, a), (_, b) = (sent(stage, run, "source")[name, 1] for name in ("anna", "bert"))
    assert (a.samples, b.samples) == (41, 20)
    expected = weighted_sum([(41 / 61, {**a.f, **a.g}), (20 / 61, {**b.f, **b.g})])
    found = states(stage, run, Model)[-1]
    assert same({**found.f, **found.g}, expected)


def test_without_its_term_fedprox_is_shot_under_fedavg() -> None:
    """mu = 0: the same final bytes; mu > 0: others."""
    ends = []
    for method, config in (("fedavg_shot", {}), ("fedprox_pl", {"mu": 0.0}), ("fedprox_pl", {"mu": 1.0})):
        stage, run = played(method, **config)
        ends.append(dict(states(stage, run, Model)[-1].f))
    assert same(ends[0], ends[1])
    assert not same(ends[0], ends[2])


def test_alone_nothing_leaves_a_target() -> None:
    """SHOT alone: the replies of targets hold no tensor, and who else takes part changes nothing."""
    stage, run = played("shot")
    other, again = played("shot", more={"roster": {"anna": "source", "bert": "target"}})
    assert not any(vars(reply) for _, reply in sent(stage, run, "adapt").values())
    assert same(dict(mine(stage, run, "bert").f), dict(mine(other, again, "bert").f))


def test_alone_who_has_not_adapted_is_scored_with_the_source_model() -> None:
    """A site that missed every round has no model of its own yet: h_S stands in, and no step fails."""
    stage = federation()
    rounds = away(stage, "emil", ("adapt", 1), ("adapt", 2))
    stage, run = played("shot", stage, rounds, WAITING, evaluate_every=2)
    ((_, taught),) = sent(stage, run, "source").values()
    assert same(dict(mine(stage, run, "emil").f), dict(taught.f))
    assert not same(dict(mine(stage, run, "dora").f), dict(taught.f))
    (emil,) = (c for c in stage.result(run)["clients"] if c["name"] == "emil")
    assert emil["accuracy"] == emil["source_only"] is not None
    assert {failure["kind"] for failure in emil["failures"]} == {"Silent"}


@pytest.mark.parametrize("who", ["anna", "dora"])
def test_a_single_row_is_refused_by_its_site(who: str) -> None:
    """Batch norm wants two rows: source or target, the site says so, and the run names it."""
    stage = federation(**{who: site(who, 1)})
    run = stage.start(experiment("fedavg_shot", ROSTER))
    row = stage.play(run)
    assert row.status.value == "stalled"
    assert who in row.cause
    assert "a single training row" in row.cause


def test_fewer_rows_than_a_batch() -> None:
    """Three rows and a batch of two: a lone last row joins the batch before it."""
    stage, run = played("fedwca", federation(dora=site("dora", 3)), batch=2)
    assert stage.row(run).status.value == "completed"


def test_images_and_buffers() -> None:
    """A network with batch norm: its running statistics travel with f; its counters stay, as they would tell of rows."""
    world = {"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}
    stage, run = played("fedavg_shot", more={"world": world})
    f = states(stage, run, Model)[-1].f
    replies = [reply.f for (_, r), (_, reply) in sent(stage, run, "adapt").items() if r == 2]
    assert {int(each["features.bottleneck.norm.num_batches_tracked"]) for each in (f, *replies)} == {0}
    mean = torch.stack([each["features.bottleneck.norm.running_mean"] for each in replies]).mean(0)
    torch.testing.assert_close(f["features.bottleneck.norm.running_mean"], mean)


TARGETS = {name: role for name, role in ROSTER.items() if role == "target"}


def simulated(names: Any = ROSTER) -> Federation:
    """The sites, in one process."""
    made: dict[str, SimSite] = {name: site(name) for name in names}
    return Federation(METHODS, made)


def model_of_the_source(method: str) -> tuple[bytes, str]:
    """What the source of a whole run sends, as a file, and the digest that the run ends in."""
    stage, run = played(method)
    ((_, taught),) = sent(stage, run, "source").values()
    digest = stage.row(run).state_digest
    assert digest is not None
    return save({name: w.clone() for name, w in {**taught.f, **taught.g}.items()}), digest


@pytest.mark.parametrize("method", ["fedwca", *night_params("shot", "source_model", "fedavg_shot", "fedprox_pl")])
def test_without_its_source_the_run_is_the_same(method: str) -> None:
    """The same seed, the model that the source would have made: the same final bytes, and nobody was asked for labels."""
    file, digest = model_of_the_source(method)
    there = simulated(TARGETS)
    run = there.start(experiment(method, TARGETS, weights=str(there.bring([file]))))
    result = there.run(run)
    assert result["status"] == "completed", result["cause"]
    assert result["state_digest"] == digest
    assert {p["name"] for p in result["phases"]}.isdisjoint({"source"})
    assert all(c["source_only"] is not None for c in result["clients"])


def test_sources_go_on_from_a_file() -> None:
    """With a file and a source, the source trains the file's model further."""
    file, digest = model_of_the_source("source_model")
    there = simulated()
    run = there.start(experiment("source_model", ROSTER, weights=str(there.bring([file]))))
    result = there.run(run)
    assert result["status"] == "completed", result["cause"]
    assert result["state_digest"] != digest
    assert "source" in {p["name"] for p in result["phases"]}


def test_a_model_of_another_world_is_refused() -> None:
    """At submission, with the first differences."""
    file, _ = model_of_the_source("source_model")
    there = simulated(TARGETS)
    digest = str(there.bring([file]))
    with pytest.raises(ConfigRefused, match=r"classifier\.weight is 3 x 64; this world has 4 classes") as refusal:
        there.start(experiment("fedwca", TARGETS, weights=digest, world={**FEATURES, "classes": 4}))
    assert refusal.value.context["path"]
    with pytest.raises(ConfigRefused, match=r"and [0-9]+ more"):
        there.start(experiment("fedwca", TARGETS, weights=digest, world={"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}))


def test_a_file_does_not_stand_in_for_targets() -> None:
    """Somebody has to adapt."""
    file, _ = model_of_the_source("source_model")
    there = simulated()
    with pytest.raises(RosterRefused, match="so nobody adapts"):
        there.start(experiment("fedwca", {"anna": "source"}, weights=str(there.bring([file]))))
