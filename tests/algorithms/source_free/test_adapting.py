"""The local adaptation: its loss is equation 9, and its labels are asked for when they should be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.synthetic import FEATURES, blobs
from tideline import nets
from tideline.algorithms.source_free import Adapting
from tideline.algorithms.source_free.adapting import Aim, Seen, adapt, labelled, objective, plain, seen
from tideline.core.asked.world import World
from tideline.core.run import ClientId, Role
from tideline.core.step import Site

WORLD = World(inputs=(8,), classes=3, model="mlp")


def place(**config: Any) -> Site:
    """A target with 20 rows."""
    data = replace(blobs(20, 1, 0), y=None)
    given = {"epochs": 3, "batch": 8, "rate": 0.01, **config}
    return Site(Adapting(**given), WORLD, ClientId("bert"), Role.TARGET, data, 1, torch.Generator().manual_seed(0))


def network() -> Any:
    """A network as first drawn."""
    torch.manual_seed(0)
    return nets.build(WORLD)


def test_the_loss_is_equation_9() -> None:
    """L_IM of the batch plus lambda times the cross-entropy of D_hat, with disputed rows mixed with their partners."""
    site, net, mu = place(lam=0.3), network(), 0.55
    labels = torch.arange(20) % 3
    partner = torch.arange(20)
    partner[[1, 4]] = torch.tensor([7, 10])
    rows = torch.tensor([0, 1, 2, 4])
    x = site.data.x.all()[rows]
    p = net(x).softmax(1)
    o = p.mean(0)
    im = (o * o.log()).sum() - (p * p.log()).sum(1).mean()
    x_hat = x.clone()
    x_hat[[1, 3]] = (1 - mu) * x[[1, 3]] + mu * site.data.x.all()[[7, 10]]
    expected = im + 0.3 * functional.cross_entropy(net(x_hat), labels[rows])
    found = objective(site, Aim(labels, partner), mu, lambda net: None)(net, x, rows)
    torch.testing.assert_close(found, expected)


def test_a_penalty_is_added() -> None:
    """What a method adds to the loss."""
    site, net = place(), network()
    rows, aim = torch.arange(4), plain(torch.zeros(20, dtype=torch.int64))
    without, with_it = (
        objective(site, aim, 0.0, penalty)(net, site.data.x.all()[rows], rows)
        for penalty in (lambda n: None, lambda n: torch.tensor(2.0))
    )
    torch.testing.assert_close(with_it - without, torch.tensor(2.0))


@pytest.mark.parametrize(("fixed", "times"), [(True, 1), (False, 3)])
def test_labels_are_asked_for_once_or_each_epoch(fixed: bool, times: int) -> None:
    """Fixed labels are made once a round."""
    site, asked, ticks = place(), [], []

    def aim(net: Any) -> Aim:
        asked.append(net.get_submodule("features")[1].weight.detach().clone())
        return plain(torch.zeros(20, dtype=torch.int64))

    adapt(network(), replace(site, tick=ticks.append), aim, fixed=fixed)
    assert len(asked) == times
    assert ticks == sorted(ticks) and ticks[-1] == 1.0
    assert fixed or not torch.equal(asked[0], asked[1])


def test_the_classifier_is_held() -> None:
    """Weight decay does not touch it either."""
    net = network()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    adapt(net, place(weight_decay=0.1), lambda n: plain(torch.zeros(20, dtype=torch.int64)))
    after = net.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in after if k.startswith("classifier"))
    assert any(not torch.equal(before[k], after[k]) for k in after)


def test_the_likeliest_class_may_be_the_label() -> None:
    """Without prototypes: the argmax, and its probability as similarity."""
    p = torch.tensor([[0.2, 0.8], [0.6, 0.4]])
    found = labelled(Seen(torch.randn(2, 4), p), Adapting(labels="predicted"))
    assert found.labels.tolist() == [1, 0]
    torch.testing.assert_close(found.similarity, torch.tensor([0.8, 0.6], dtype=torch.float64), atol=1e-6, rtol=0)
    assert found.common == 0


def test_a_pass_sees_what_the_network_says() -> None:
    """Features and softmax outputs, in evaluation mode."""
    site, net = place(), network()
    found = seen(net, site)
    torch.testing.assert_close(found.p, net.eval()(site.data.x.all()).softmax(1))
    assert found.z.shape == (20, nets.width(WORLD))
    assert FEATURES["model"] == WORLD.model
