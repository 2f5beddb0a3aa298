"""Runs whose rows are normalised: what is the default, the exchange before all others, and what comes of wild scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import save

from tests.engine.present import present
from tests.frozen.played import IMAGES, begun, drawn
from tests.synthetic import FEATURES, Rows, experiment, rows, sites
from tideline.algorithms import METHODS
from tideline.archive.checks import LAX
from tideline.archive.reader import decode
from tideline.client.answers import RunResult
from tideline.core.algorithm import resolve
from tideline.core.asked.normalise import Normalise, Scaling
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.core.phase import Turn
from tideline.core.rows import MemoryRows
from tideline.core.run import ClientId, Member, Role, RunId
from tideline.core.step import Data, View
from tideline.engine.simulation.federation import Federation, SimSite
from tideline.experiments.simulation import models_of
from tideline.learning.in_world import asked, in_world, statistics_in
from tideline.learning.prediction import Classifier

UNSAID = {key: value for key, value in FEATURES.items() if key != "normalise"}
ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
SCALES = torch.tensor([0.01, 1.0, 4e6, 1.0, 1.0, 300.0, 1.0, 1e-3])


def ended(federation: Federation, given: Mapping[str, Any]) -> dict[str, Any]:
    return dict(federation.run(federation.start(dict(given))))


@pytest.mark.parametrize(
    ("method", "more", "expected"),
    [
        ("fedavg", {}, "shared"),
        ("fedavg", {"world": {**IMAGES}}, None),
        ("fedavg", {"world": {**UNSAID, "normalise": "none"}}, "none"),
        ("fedavg", {"world": {**UNSAID, "normalise": {"kind": "site"}}}, "site"),
        ("fedavg", {"roster": {"anna": "source", "carl": "target"}}, "site"),
        ("local", {}, "none"),
        ("local", {"config": {"unseen": True}}, "shared"),
    ],
)
def test_the_default(method: str, more: Mapping[str, Any], expected: str | None) -> None:
    """It is part of the run's world, where rows are vectors."""
    result = ended(Federation(METHODS, sites()), {**experiment(method, ROSTER), "world": UNSAID, **more})
    assert result["status"] == "completed", result["cause"]
    assert result["world"].get("normalise") == expected
    assert ("normalise" in {clause["phase"] for clause in result["contract"]}) == (expected == "shared")


def test_weights_are_of_rows_as_they_are() -> None:
    """A run that brings them normalises nothing, unless it says so."""
    federation, run = begun(drawn(), world=UNSAID)
    assert federation.run(run)["world"]["normalise"] == "none"
    given = {**experiment("shot", {"carl": "target"}), "weights": federation.bring([save(drawn())])}
    assert ended(federation, {**given, "world": UNSAID})["world"]["normalise"] == "none"
    with pytest.raises(ConfigRefused, match="and there is none"):
        federation.start({**given, "world": {**UNSAID, "normalise": "shared"}})


@dataclass(frozen=True)
class Scaled:
    """Rows of a domain whose columns have wild scales; the first `n` alone, to train on."""

    domain: int
    n: int | None = None

    def __call__(self, world: World, role: Role) -> Rows:
        made = rows(self.domain, world)
        train, held = (replace(each, x=MemoryRows(each.x.all() * SCALES)) for each in (made.train, made.held_out))
        few = train if self.n is None else Data(train.x.at(torch.arange(self.n)), train.y, train.domain[: self.n], train.domains)
        few = replace(few, y=None if few.y is None else few.y[: len(few)])
        return Rows(few, held)


def wild(**more: Scaled) -> Federation:
    return Federation(METHODS, {n: SimSite(more.get(n, Scaled(i))) for i, n in enumerate(ROSTER)})


def accuracy(result: Mapping[str, Any]) -> float:
    found = [client["accuracy"] for client in result["clients"]]
    return float(sum(found) / len(found))


def test_columns_of_wild_scales() -> None:
    """Near chance without, and learnt by the default."""
    given = {**experiment("fedavg", ROSTER, config={"rounds": 4, "rate": 0.1}), "world": {**UNSAID, "model": "linear"}}
    after, before = ended(wild(), given), ended(wild(), {**given, "world": {**given["world"], "normalise": "none"}})
    assert (before["status"], after["status"]) == ("completed", "completed"), (before["cause"], after["cause"])
    assert accuracy(before) < 0.75 < 0.9 < accuracy(after)


def test_what_is_prepared_of_rows_is_prepared_of_normalised_ones() -> None:
    """A method that stores features in its first memory, at the join, does so again."""
    given = {**experiment("feddadil", ROSTER, config={"encoder_rounds": 0}), "world": {**UNSAID, "model": "linear"}}
    federation = wild()
    run = federation.start(given)
    result = federation.run(run)
    assert result["status"] == "completed", result["cause"]
    method = in_world(resolve(METHODS, "feddadil"), Normalise(Scaling.SHARED))
    for name in ROSTER:
        vault = federation.agents[ClientId(name)].vault
        head = present(vault.head(RunId(run)))
        memory = decode(method.memory, head.memory[0][0], vault.parts(RunId(run)), LAX)
        assert not memory.z.numel() and statistics_in(memory) is not None  # rows go with the run's last exchange


def test_targets_are_not_asked() -> None:
    """And a labelled site that tells its moments alone has taught nothing."""
    federation = wild()
    run = federation.start({**experiment("fedavg", ROSTER), "world": UNSAID})
    federation.run(run)
    assert [order.client for order in federation.journal.orders(run, 0)] == ["anna", "bert"]


def test_a_run_that_samples_sites() -> None:
    """Those that are drawn tell their moments."""
    roster = {**ROSTER, "dora": "source"}
    federation = Federation(METHODS, {n: SimSite(Scaled(i)) for i, n in enumerate(roster)})
    run = federation.start({**experiment("fedavg", roster), "world": UNSAID, "sample": 2})
    assert federation.run(run)["status"] == "completed" and len(federation.journal.orders(run, 0)) == 2
    with pytest.raises(ConfigRefused, match="takes no sample"):
        federation.start({**experiment("local", roster), "world": {**UNSAID, "normalise": "shared"}, "sample": 2})


def test_too_few_rows() -> None:
    """The run ends with the reason; so it does where sites turn out to have no labels."""
    odd = wild(anna=Scaled(0, 1), bert=Scaled(1, 0))
    result = ended(odd, {**experiment("fedavg", {"anna": "peer", "bert": "peer"}), "world": UNSAID})
    assert result["status"] == "failed"
    assert "The labelled sites have 1 rows to train on in all" in result["cause"], result["cause"]
    config, nobody = resolve(METHODS, "fedavg").configure({}), (Member(ClientId("anna"), Role.PEER, labelled=False),)
    with pytest.raises(RosterRefused, match="and there is none"):
        asked(None, Turn(config=config, world=World(), roster=nobody, round=1, rng=torch.Generator()))


def test_a_site_without_rows_of_its_own() -> None:
    """Where each site is normalised by its own, it says so."""
    given = {**experiment("fedavg", ROSTER), "world": {**UNSAID, "normalise": "site"}}
    result = ended(wild(carl=Scaled(2, 1)), given)
    assert result["status"] == "stalled" and "carl" in result["cause"] and "Of 1 rows there is no mean" in result["cause"]


@pytest.mark.parametrize("at", ["inputs", "features"])
def test_shared_statistics_before_and_behind_a_frozen_encoder(at: str) -> None:
    """Of each channel of images, or of each feature; the model has them inside."""
    federation, run = begun(drawn(IMAGES), world={**IMAGES, "normalise": {"kind": "shared", "at": at}})
    result: Any = federation.run(run)
    assert result["status"] == "completed", result["cause"]
    ((_, made),) = models_of(federation, RunId(run), cast(RunResult, result), METHODS)
    assert made.statistics is not None and len(made.statistics.mean) == (1 if at == "inputs" else 128)
    for client in result["clients"]:
        held = sites()[client["name"]].open_site_data(World(inputs=(1, 8, 8)), Role.TARGET).view(View.HELD_OUT, Role.TARGET)
        right = int((Classifier(made).predict(held.x.all()).classes == held.y).sum())
        assert right == round(client["accuracy"] * len(held))
