"""A source model that is brought as a file: the run is the one that its source would have begun."""

from __future__ import annotations

from typing import Any

import pytest
from safetensors.torch import save

from tests.algorithms.lies import at_night
from tests.algorithms.source_free.played import ROSTER, played, sent, site
from tests.synthetic import FEATURES, experiment
from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve
from tideline.core.errors import ConfigRefused, RosterRefused
from tideline.engine.simulation.federation import Federation, SimSite

TARGETS = {name: role for name, role in ROSTER.items() if role == "target"}


def federation(names: Any = ROSTER) -> Federation:
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


@pytest.mark.parametrize("method", ["fedwca", *at_night("shot", "source_model", "fedavg_shot", "fedprox_pl")])
def test_without_its_source_the_run_is_the_same(method: str) -> None:
    """The same seed, the model that the source would have made: the same final bytes, and nobody was asked for labels."""
    file, digest = model_of_the_source(method)
    there = federation(TARGETS)
    run = there.start(experiment(method, TARGETS, weights=str(there.bring([file]))))
    result = there.run(run)
    assert result["status"] == "completed", result["cause"]
    assert result["state_digest"] == digest
    assert {p["name"] for p in result["phases"]}.isdisjoint({"source"})
    assert all(c["source_only"] is not None for c in result["clients"])


def test_sources_go_on_from_a_file() -> None:
    """With a file and a source, the source trains the file's model further."""
    file, digest = model_of_the_source("source_model")
    there = federation()
    run = there.start(experiment("source_model", ROSTER, weights=str(there.bring([file]))))
    result = there.run(run)
    assert result["status"] == "completed", result["cause"]
    assert result["state_digest"] != digest
    assert "source" in {p["name"] for p in result["phases"]}


def test_a_model_of_another_world_is_refused() -> None:
    """At submission, with the first differences."""
    file, _ = model_of_the_source("source_model")
    there = federation(TARGETS)
    digest = str(there.bring([file]))
    with pytest.raises(ConfigRefused, match=r"classifier\.weight is 3 x 64; this world has 4 classes") as refusal:
        there.start(experiment("fedwca", TARGETS, weights=digest, world={**FEATURES, "classes": 4}))
    assert refusal.value.context["path"]
    with pytest.raises(ConfigRefused, match=r"and [0-9]+ more"):
        there.start(experiment("fedwca", TARGETS, weights=digest, world={"inputs": [1, 8, 8], "classes": 3, "model": "lenet_bn"}))


def test_a_file_does_not_stand_in_for_targets() -> None:
    """Somebody has to adapt."""
    file, _ = model_of_the_source("source_model")
    there = federation()
    with pytest.raises(RosterRefused, match="so nobody adapts"):
        there.start(experiment("fedwca", {"anna": "source"}, weights=str(there.bring([file]))))


def test_every_method_says_whether_it_takes_a_file() -> None:
    """Those of the family do."""
    assert all(resolve(METHODS, name).initial_weights for name in ("source_model", "shot", "fedavg_shot", "fedprox_pl", "fedwca"))
