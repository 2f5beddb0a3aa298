"""What methods say of single rows in private runs is of that row and of what everybody knows: other rows may come and go."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.algorithms.test_private_sums import N, here, network, sources
from tideline import nets
from tideline.algorithms.averaging.messages import Model
from tideline.algorithms.fedpcl_pl import Common, likeliest_rows
from tideline.algorithms.fedsr import fedsr, predict
from tideline.algorithms.kd3a.private import voters_row_by_row
from tideline.algorithms.self_training import UNSURE, of_sure_rows, row_by_row_labels
from tideline.algorithms.source_free.private import Noised, labelled_rows, unit
from tideline.nets import probabilistic


def pseudo_labels(without: int | None) -> Tensor:
    site, _, world = here("self_training", without, threshold=0.4)
    found = row_by_row_labels(nets.weights_of(network(world)), site).y
    assert found is not None
    return found


def nearest(without: int | None) -> Tensor:
    site, _, world = here("shot", without)
    known = Noised(torch.full((3,), 1 / 3).double(), unit(torch.eye(3, nets.width(world))))
    return labelled_rows(network(world), known, site)


def votes(without: int | None) -> Tensor:
    site, _, world = here("kd3a", without)
    return voters_row_by_row(sources(world), site).movedim(1, 0)


def likeliest(without: int | None) -> Tensor:
    site, _, world = here("fedpcl_pl", without)
    h = sources(world)[0]
    order = Common(f=h.f, g=h.g, seed=1, mean=torch.zeros(0), present=torch.zeros(0))
    z, labels = likeliest_rows(order, site)
    return torch.cat([z, labels[:, None].to(z.dtype)], 1)


def predictions(without: int | None) -> Tensor:
    site, _, world = here("fedsr", without)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(3)
        order = Model(nets.weights_of(probabilistic.build(world)))
    return predict(order, fedsr.prepare(site.config, site), site, site.data.x.all())


@pytest.mark.parametrize("said", [pseudo_labels, nearest, votes, likeliest], ids=lambda each: each.__name__)
def test_a_row_that_is_gone_changes_nothing_of_the_others(said: Callable[[int | None], Tensor]) -> None:
    """To the last digit, so that no label flips."""
    whole = said(None)
    for i in range(N):
        others = torch.tensor([j for j in range(N) if j != i])
        assert torch.equal(said(i), whole[others])


def test_predictions_share_their_draws() -> None:
    """With draws of its own each row behind the one that is gone would get those of another."""
    whole = predictions(None)
    for i in (0, 5):
        others = torch.tensor([j for j in range(N) if j != i])
        assert torch.allclose(predictions(i), whole[others], atol=1e-5)


def test_a_row_that_is_not_sure_teaches_nothing() -> None:
    """And takes part in the draw all the same: some are, some are not."""
    labels = pseudo_labels(None)
    assert 0 < int((labels == UNSURE).sum()) < N
    net = torch.nn.Linear(2, 3)
    loss = of_sure_rows(lambda net, x, y: functional.cross_entropy(net(x), y))
    with torch.no_grad():
        unsure, sure = (loss(net, torch.ones(1, 2), torch.tensor([y])) for y in (UNSURE, 1))
    assert float(unsure) == 0.0 < float(sure)
