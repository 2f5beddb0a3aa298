"""What one row changes in the sums that methods send of all rows in private runs: each row is taken out, under the same noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from tests.learning.test_private_statistics import PRIVACY
from tests.synthetic import CLASSES, FEATURES, IMAGES, blobs
from tideline import nets
from tideline.algorithms import METHODS
from tideline.algorithms.fdan import client as fdan
from tideline.algorithms.fedpcl_pl import Common, noised
from tideline.algorithms.fedpcl_pl import head_of as fedpcl_head
from tideline.algorithms.fedwca.private import noised_confidence
from tideline.algorithms.ifca_pl.choosing import filled, noised_unfitness
from tideline.algorithms.kd3a.private import noised_qualities, sets_of
from tideline.algorithms.ladd.client import noised_style
from tideline.algorithms.source_free.private import noised_sums, seen_rows, shares
from tideline.algorithms.source_free.source import drawn
from tideline.core.algorithm import resolve
from tideline.core.asked.private import Meter
from tideline.core.asked.world import World
from tideline.core.run import ClientId, Role
from tideline.core.step import Site
from tideline.nets import layers
from tideline.numerics.alignment.feature_maps import waves

N = 12
ROUNDED = 1 + 1e-4  # of float32 after the noise


def here(method: str, without: int | None = None, world: Any = FEATURES, **config: Any) -> tuple[Site[Any], Meter, World]:
    """A site whose rows lack one, with a meter of the same key each time."""
    made = World(**{**world, "inputs": tuple(world["inputs"]), "normalise": None})
    kept = torch.tensor([i for i in range(N) if i != without])
    data = blobs(N, 0, 0, made.inputs)
    meter = Meter(PRIVACY, b"k" * 32)
    mine = replace(data, x=data.x.at(kept), y=None, domain=data.domain[kept])
    settings = resolve(METHODS, method).configure(config, "tiny")
    rng = Generator().manual_seed(0)
    return Site(settings, made, ClientId("carl"), Role.TARGET, mine, 1, rng, private=meter), meter, made


def network(world: World) -> Any:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(3)
        return nets.build(world).eval()


def moment(without: int | None) -> Tensor:
    site, meter, world = here("fdan", without)
    by = waves(40, nets.width(world), 4.0, Generator().manual_seed(1))
    return PRIVACY.rows * fdan.noised_moment(by, network(world), site, meter).double()


def style(without: int | None) -> Tensor:
    site, meter, _ = here("ladd", without, IMAGES)
    return PRIVACY.rows * noised_style(site, meter).double()


def sources(world: World) -> tuple[Any, ...]:
    made = []
    for seed in range(3):
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            made.append(drawn(world))
    return tuple(made)


def qualities(without: int | None) -> Tensor:
    site, meter, world = here("kd3a", without)
    return noised_qualities(sources(world), sets_of(3, exact=True), 0.3, site, meter)[0]


def confidence(without: int | None) -> Tensor:
    site, meter, world = here("fedwca", without)
    net = network(world)
    return PRIVACY.rows * noised_confidence(net, [{}, {}], lambda f: None, site, meter)


def counts(without: int | None) -> Tensor:
    site, meter, world = here("fedpcl_pl", without)
    h = sources(world)[0]
    order = Common(f=h.f, g=h.g, seed=1, mean=torch.zeros(0), present=torch.zeros(0))
    memory = resolve(METHODS, "fedpcl_pl").prepare(site.config, site)
    return noised(order, fedpcl_head(order, memory, site), site, meter).counts.double()


QUALITIES = math.sqrt(sum(len(T) ** 2 for size in (1, 2, 3) for T in combinations(range(3), size)))


@pytest.mark.parametrize(
    ("sums", "most"),
    [(moment, fdan.LONGEST), (style, 64.0), (qualities, QUALITIES), (confidence, math.sqrt(2))],
    ids=["moment", "style", "qualities", "confidence"],
)
def test_a_row_changes_sums_by_their_bound_at_most(sums: Callable[[int | None], Tensor], most: float) -> None:
    """Some row changes it, none by more."""
    whole = sums(None)
    changes = [float(torch.linalg.vector_norm(whole - sums(i))) for i in range(N)]
    assert 0 < max(changes) <= most * ROUNDED


def test_counts_are_whole_numbers_of_which_a_class_with_few_has_none() -> None:
    found = counts(None)
    assert found.shape == (CLASSES,) and torch.equal(found, found.round()) and bool(((found == 0) | (found >= 5)).all())


def test_prototypes_and_the_mean_output_come_of_one_charge() -> None:
    """And none is asked for where labels are the likeliest class."""
    site, meter, world = here("shot")
    known = noised_sums(network(world), site, meter, by_prototypes=True)
    assert known.prototypes is not None and known.prototypes.shape == (CLASSES, nets.width(world))
    assert len(meter.spent) == 1 and float(known.o.sum()) == pytest.approx(1.0)
    assert noised_sums(network(world), site, meter, by_prototypes=False).prototypes is None and len(meter.spent) == 2


@pytest.mark.parametrize("sums", [[-50.0, 3.0, 90.0], [0.0, 0.0, 0.0], [-1.0, -1.0, -1.0]])
def test_shares_of_noise_are_shares(sums: list[float]) -> None:
    """None is 0, so that their logarithms are finite, and they sum to one."""
    found = shares(torch.tensor(sums, dtype=torch.float64), 40)
    assert bool((found > 0).all()) and float(found.sum()) == pytest.approx(1.0)


def test_a_model_that_another_site_spoilt_is_not_chosen_and_spoils_no_choice() -> None:
    """Finite weights whose outputs are not: the other models' sums are what they would be beside any model."""
    site, _, world = here("ifca_pl")
    net, (good, even) = network(world), (backbone(seed, world) for seed in (1, 2))
    spoilt = {name: w.sign() * 3e38 for name, w in good.items()}
    g = layers.classifier_of(nets.weights_of(net))
    assert not torch.isfinite(seen_rows(filled(net, {**spoilt, **g}), site.data.x.all())[1]).any()
    beside = [noised_unfitness(net, (good, each, even), g, site, quiet()) for each in (spoilt, good)]
    assert beside[0][1] > max(beside[0][0], beside[0][2])
    assert beside[0][::2] == pytest.approx(beside[1][::2], abs=1e-3)


def quiet() -> Meter:
    """A meter with next to no noise."""
    return Meter(replace(PRIVACY, noise=0.01), b"k" * 32)


def backbone(seed: int, world: World) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return layers.backbone_of(nets.weights_of(nets.build(world)))
