"""Images that are changed at random: by draws of their own generator alone, and where a run cannot ask for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from tideline.algorithms import METHODS
from tideline.core.algorithm import resolve
from tideline.core.asked.world import World
from tideline.core.errors import ConfigRefused, DataRefused
from tideline.core.rows import NO_AUGMENT, Augment, Colour, Flip, MemoryRows, RandAugment, joined
from tideline.core.settings import parse, plain
from tideline.learning.loading.augmented import Augmented, check_augment
from tideline.learning.loading.augmenting import OPERATIONS, augmented

X = torch.rand(12, 3, 16, 16, generator=Generator().manual_seed(0))
ALL = Augment(Flip.BOTH, (0.5, 1.0), Colour(0.2, 0.2, 0.2, 0.1), RandAugment(3, 12))
FEDAVG = resolve(METHODS, "fedavg")


def changed(by: Augment, seed: int = 0, x: Tensor = X) -> Tensor:
    return augmented(x, by, Generator().manual_seed(seed))


@pytest.mark.parametrize("by", [Augment(flip=Flip.HORIZONTAL), Augment(crop=(0.3, 0.8)), Augment(colour=Colour(0.4)), ALL])
def test_images_are_changed_by_their_generator_alone(by: Augment) -> None:
    """Equal seeds, equal bytes; the rows stay as they were, and so does the generator that all threads share."""
    before, shared = X.clone(), torch.random.get_rng_state()
    made = changed(by)
    assert torch.equal(made, changed(by)) and not torch.equal(made, changed(by, 1)) and not torch.equal(made, X)
    assert torch.equal(X, before) and torch.equal(shared, torch.random.get_rng_state())
    assert made.shape == X.shape and made.dtype == X.dtype and float(made.min()) >= 0 and float(made.max()) <= 1


def test_threads_do_not_disturb_each_other() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda seed: changed(ALL, seed), range(8)))
    assert all(torch.equal(each, changed(ALL, seed)) for seed, each in enumerate(found))


def test_flips() -> None:
    x = torch.rand(400, 1, 3, 3, generator=Generator().manual_seed(4))
    made = changed(Augment(flip=Flip.HORIZONTAL), 0, x)
    turned = [bool(torch.equal(a, b.flip(2))) for a, b in zip(made, x, strict=True)]
    assert 150 < sum(turned) < 250
    assert all(t or torch.equal(a, b) for t, a, b in zip(turned, made, x, strict=True))
    both = changed(Augment(flip=Flip.BOTH), 0, x)
    kinds = [((), (1,), (2,), (1, 2))[k] for k in range(4)]
    assert all(sum(torch.equal(a, b.flip(k)) for a, b in zip(both, x, strict=True)) > 60 for k in kinds)


def test_a_crop_of_the_whole_is_nearly_the_whole() -> None:
    ramp = torch.linspace(0, 1, 16).expand(1, 1, 16, 16)
    spans = [float((each := changed(Augment(crop=(0.2, 0.2)), seed, ramp)).max() - each.min()) for seed in range(20)]
    assert 0.2 < sum(spans) / 20 < 0.6


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str) -> None:
    """Each takes images of one channel and three, either way, and stays within [0, 1]."""
    for channels, strength, way in product((1, 3), (0.0, 1.0), (1, -1)):
        image = X[0, :channels]
        changed = OPERATIONS[name](image, strength, way)
        assert changed.shape == image.shape and 0 <= float(changed.min()) <= float(changed.max()) <= 1


def test_rows() -> None:
    """They are changed only where a generator is given: not in parts, not all at once; so through views of them."""
    rows = Augmented(MemoryRows(X), ALL)
    some = torch.tensor([3, 1])
    assert torch.equal(rows.batch(some), X[some]) and torch.equal(rows.all(), X)
    assert torch.equal(torch.cat(list(rows.at(some).parts())), X[some])
    assert rows.draws and rows.at(some).draws and joined([rows, MemoryRows(X)]).draws and not MemoryRows(X).draws
    assert not torch.equal(rows.at(some).batch(torch.arange(2), Generator()), X[some])
    assert rows.batch(torch.empty(0, dtype=torch.int64), Generator()).shape == (0, 3, 16, 16)


def test_pixels_outside_the_unit() -> None:
    """Colours of what is no picture are not changed; it can still be mirrored."""
    rows = Augmented(MemoryRows(3 * X), Augment(colour=Colour(0.1)))
    with pytest.raises(DataRefused, match=r"Row \d+ has numbers outside \[0, 1\]"):
        rows.batch(torch.arange(4), Generator())
    Augmented(MemoryRows(3 * X), Augment(flip=Flip.BOTH)).batch(torch.arange(4), Generator())


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"flip": "sideways"}, "augment.flip"),
        ({"rotate": 3}, "augment.rotate"),
        ({"crop": 0.5}, "augment.crop"),
        ({"crop": [0.5]}, "augment.crop"),
        ({"crop": [0.0, 1.0]}, "augment.crop[0]"),
        ({"crop": [0.5, 1.5]}, "augment.crop[1]"),
        ({"crop": [0.9, 0.5]}, "augment.crop"),
        ({"colour": {"hue": 0.7}}, "augment.colour.hue"),
        ({"colour": {"brightness": -1}}, "augment.colour.brightness"),
        ({"colour": {"gamma": 1}}, "augment.colour.gamma"),
        ({"randaugment": {"operations": 0}}, "augment.randaugment.operations"),
        ({"randaugment": {"magnitude": 31}}, "augment.randaugment.magnitude"),
        ({"randaugment": {"magnitude": "strong"}}, "augment.randaugment.magnitude"),
    ],
)
def test_settings_out_of_range(given: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigRefused) as raised:
        parse(Augment, given, "augment")
    assert raised.value.context["path"] == path


def test_settings_there_and_back() -> None:
    for each in (ALL, NO_AUGMENT, Augment(crop=(0.5, 0.9))):
        assert parse(Augment, plain(each), "augment") == each
    assert ALL.on and not NO_AUGMENT.on and parse(Augment, {}, "augment") == NO_AUGMENT


@pytest.mark.parametrize(
    ("world", "by", "features", "said"),
    [
        (World(inputs=(8,)), Augment(flip=Flip.BOTH), False, "is for images"),
        (World(inputs=(3, 8, 8)), Augment(flip=Flip.BOTH), True, "the encoder is frozen"),
        (World(inputs=(4, 8, 8)), Augment(randaugment=RandAugment()), False, "images of 4 channels do not have"),
        (World(inputs=(1, 8, 8)), Augment(colour=Colour(hue=0.1)), False, "images of one channel have neither"),
    ],
)
def test_worlds_that_it_is_not_for(world: World, by: Augment, features: bool, said: str) -> None:
    with pytest.raises(ConfigRefused, match=said) as raised:
        check_augment(by, world, features, FEDAVG)
    assert raised.value.todo
    check_augment(NO_AUGMENT, world, features, FEDAVG)
