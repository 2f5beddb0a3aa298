"""Runs that change images at random, for every method: they train on others than those without, the same whoever reads them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest

from tests.laws.case import NETWORKS, Case
from tests.laws.stage import Stage
from tests.synthetic import IMAGES
from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve
from tideline.core.errors import ConfigRefused

AT_NIGHT = pytest.mark.nightly(job="methods")

AUGMENT = {"flip": "both", "crop": [0.3, 0.7]}
# A run's model; an exchange of features whose rows are drawn in another step; rows that are mixed with others; half of a pair.
QUICK = ("fedavg", "fada", "shot", "stlf")
NAMES = [name for name, _ in METHODS if resolve(METHODS, name).augments]
REFUSED = [name for name, _ in METHODS if not resolve(METHODS, name).augments]
every = pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=AT_NIGHT) for n in NAMES])


def image_experiment(name: str, **more: object) -> dict[str, object]:
    world = {**IMAGES, "model": NETWORKS.get(name, IMAGES["model"]), "normalise": "none"}
    return {**Case(name, METHODS).experiment(), "world": world, **more}


@cache
def ending(name: str, augmented: bool = True, workers: int | None = None) -> tuple[str, Mapping[str, object] | None]:
    """The digest of the final state with the sites' memories, and what the result says of it."""
    stage = Stage(METHODS, Case(name, METHODS).sites(), workers=workers)
    row = stage.play(run := stage.start(image_experiment(name, **({"augment": AUGMENT} if augmented else {}))))
    assert row.status == "completed", row.cause
    return f"{row.state_digest} {stage.memories(run)}", stage.result(run)["augment"]


@every
def test_it_changes_what_is_trained_on(name: str) -> None:
    """Other bytes than without, and the result says why."""
    (on, said), (off, nothing) = ending(name, workers=0), ending(name, augmented=False)
    assert on != off
    assert said is not None and said["flip"] == "both" and nothing is None


@every
@pytest.mark.parametrize("workers", [1, 4])
def test_the_number_of_threads_does_not_matter(name: str, workers: int) -> None:
    """Equal bytes whoever reads ahead."""
    assert ending(name, workers=workers)[0] == ending(name, workers=0)[0]


@pytest.mark.parametrize("name", REFUSED)
def test_a_method_that_trains_on_no_rows_refuses_it(name: str) -> None:
    """Nothing would be changed."""
    with pytest.raises(ConfigRefused, match="augment") as raised:
        Case(name, METHODS).stage().start(image_experiment(name, augment=AUGMENT))
    assert raised.value.context["path"] == "augment"
