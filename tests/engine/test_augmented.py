"""`augment` on its way from an experiment to a site: refused where it has no effect, told to owners, and a part of the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from tests.frozen.played import begun, drawn
from tests.laws.stage import Stage
from tests.synthetic import FEATURES, IMAGES, experiment, rows, sites
from tideline.algorithms import METHODS
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, Malformed
from tideline.core.rows import NO_AUGMENT, Flip, MemoryRows
from tideline.core.run import Role
from tideline.engine.model.brief import brief_in, brief_of
from tideline.engine.simulation.federation import SimSite
from tideline.engine.site.admission import brief_in_words, facts_of, intent_digest
from tideline.learning.formats.holdings import Holdings

ROSTER = {"anna": "source", "bert": "source", "carl": "target"}
FLIP = {"flip": "horizontal"}


def asked(method: str = "fedavg", world: Mapping[str, Any] = IMAGES, **more: Any) -> dict[str, Any]:
    return {**experiment(method, ROSTER), "world": dict(world), **more}


def told(stage: Stage, **brief: Any) -> Any:
    """What the first site reads of the order that waits for it, some of it exchanged."""
    order = next(iter(stage.waiting()))
    return brief_in(replace(order, brief={**order.brief, **brief}))


def test_it_reaches_the_site() -> None:
    """With the run's brief, and only where it is on; its owner reads it, and approves another intent."""
    on, off = Stage(METHODS, sites()), Stage(METHODS, sites())
    run, other = on.start(asked(augment=FLIP)), off.start(asked())
    assert "augment" not in brief_of(off.row(other), Role.SOURCE)
    brief, plain = told(on), told(off)
    assert brief.augment.flip is Flip.HORIZONTAL and plain.augment == NO_AUGMENT
    assert "images are changed at random to train on: flip: horizontal" in brief_in_words(brief)
    assert facts_of(brief)["augment"]["flip"] == "horizontal" and "augment" not in facts_of(plain)  # type: ignore[call-overload, index]
    assert intent_digest(brief) != intent_digest(replace(brief, augment=NO_AUGMENT))
    assert on.row(run).contract == off.row(other).contract
    assert on.result(run)["augment"]["flip"] == "horizontal" and off.result(other)["augment"] is None


def test_a_brief_that_is_wrong() -> None:
    """What no coordinator of ours says is refused by the site."""
    stage = Stage(METHODS, sites())
    stage.start(asked(augment=FLIP))
    with pytest.raises(Malformed, match="its augment is missing or wrong"):
        told(stage, augment=["flip"])
    with pytest.raises(ConfigRefused, match=r"augment\.crop"):
        told(stage, augment={"crop": [2, 3]})


@pytest.mark.parametrize(
    ("given", "path", "said"),
    [
        (asked(augment={"flip": "no"}), "augment.flip", "should be one of"),
        (asked(augment=3), "augment", "should be a mapping"),
        (asked(augment=FLIP, world=FEATURES), "augment", "augment is for images"),
        (asked("gaussian_heads", augment=FLIP), "augment", "train on no rows"),
        (asked(augment={"colour": {"hue": 0.1}}), "augment.colour", "images of one channel"),
    ],
)
def test_experiments_that_are_refused(given: Mapping[str, Any], path: str, said: str) -> None:
    """By the place that is wrong, before anybody is asked."""
    with pytest.raises(ConfigRefused, match=said) as raised:
        Stage(METHODS, sites()).start(given)
    assert raised.value.context["path"] == path and raised.value.todo


def test_a_frozen_encoder_has_nothing_to_change() -> None:
    """Its features are computed once."""
    with pytest.raises(ConfigRefused, match="the encoder is frozen"):
        begun(drawn(IMAGES), world=IMAGES, augment=FLIP)


def test_a_reference_that_trains_on_no_rows_goes_without() -> None:
    """The run itself has them changed."""
    stage = Stage(METHODS, sites())
    run = stage.row(stage.start(asked("fedprox", augment=FLIP, reference={"method": "central", "roles": ["source"]})))
    assert run.spec.augment.on and run.reference is not None and not stage.row(run.reference).spec.augment.on
    alike = stage.row(stage.start(asked("fedprox", augment=FLIP, reference={"method": "fedavg"})))
    assert alike.reference is not None and stage.row(alike.reference).spec.augment == alike.spec.augment


@dataclass(frozen=True, eq=False)
class Noted(MemoryRows):
    """Rows that note which of them were read to train on, and which as they are."""

    trained: set[int] = field(default_factory=set)
    others: set[int] = field(default_factory=set)

    def batch(self, indices: Tensor, rng: Generator | None = None) -> Tensor:
        (self.others if rng is None else self.trained).update(indices.tolist())
        return super().batch(indices)


def test_rows_for_validation_and_for_scores_stay_as_they_are() -> None:
    """Also where training stops early by them."""
    noted, chosen = dict[str, Noted](), torch.arange(7)

    def open_site_data(world: World, role: Role) -> Holdings:
        held = rows(0, world)
        x = noted["train"] = Noted(held.train.x.all())
        y = noted["held_out"] = Noted(held.held_out.x.all())
        return Holdings(replace(held.train, x=x), replace(held.held_out, x=y), chosen)

    stage = Stage(METHODS, {**sites(), "anna": SimSite(open_site_data)})
    more = {"config": {"patience": 1, "epochs": 2}, "selection": "accuracy", "augment": FLIP}
    assert stage.play(stage.start(asked(**more))).status == "completed"
    train, validation = noted["train"], set(chosen.tolist())
    assert train.trained == set(range(len(train))) - validation and train.others >= validation
    assert not noted["held_out"].trained


@pytest.mark.parametrize("normalise", ["none", "site", "shared"])
def test_rows_are_changed_before_they_are_normalised(normalise: str) -> None:
    """Statistics are of rows as they are: two runs that differ by it alone normalise alike, and train on others."""
    world = {**IMAGES, "normalise": normalise}
    ended = []
    for more in ({}, {"augment": FLIP}):
        stage = Stage(METHODS, sites())
        row = stage.play(stage.start(asked(world=world, **more)))
        assert row.status == "completed", row.cause
        ended.append(row.state_digest)
    assert len(set(ended)) == 2
