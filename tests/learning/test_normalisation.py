"""What batch norm measures anew: averages over one pass, and nothing else of the network."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tideline import nets
from tideline.core.asked.world import World
from tideline.learning.fit import normed, remeasure

WORLD = World(inputs=(1, 8, 8), classes=3, model="lenet_bn")


def rows(n: int, seed: int = 0) -> Tensor:
    """Images that lie elsewhere than standard normal ones."""
    return 2 + 3 * torch.randn(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def network() -> nn.Module:
    """LeNet with a bottleneck, in training mode."""
    torch.manual_seed(0)
    return nets.build(WORLD).train()


def test_one_part_is_its_mean_and_variance() -> None:
    """Of rows that pass at once, of what comes into the layer; dropout changes nothing. Then it is in evaluation mode."""
    net, x = network(), rows(30)
    remeasure(net, x, 30, torch.Generator())
    (layer,) = normed(net)
    with torch.no_grad():
        f = net.get_submodule("features.backbone")(x)
        z = net.get_submodule("features.bottleneck.linear")(f)
    torch.testing.assert_close(layer.running_mean, z.mean(0))
    torch.testing.assert_close(layer.running_var, z.var(0))
    assert not net.training and layer.momentum == 0.1


def test_parts_are_averaged_alike() -> None:
    """Of 50 rows, 16 or somewhat more at once: three parts, in the generator's order."""
    net, x = network(), rows(50)
    remeasure(net, x, 16, torch.Generator().manual_seed(4))
    (layer,) = normed(net)
    parts = torch.randperm(50, generator=torch.Generator().manual_seed(4)).tensor_split(3)
    assert [len(part) for part in parts] == [17, 17, 16]
    with torch.no_grad():
        z = net.get_submodule("features.bottleneck.linear")(net.get_submodule("features.backbone")(x))
    torch.testing.assert_close(layer.running_mean, torch.stack([z[part].mean(0) for part in parts]).mean(0))
    torch.testing.assert_close(layer.running_var, torch.stack([z[part].var(0) for part in parts]).mean(0))


def test_nothing_else_changes() -> None:
    """No weight, and no counter, which would tell the number of parts. What was measured before has no say."""
    net = network()
    before = {name: w.clone() for name, w in net.state_dict().items()}
    remeasure(net, rows(40), 8, torch.Generator().manual_seed(1))
    after = {name: w.clone() for name, w in net.state_dict().items()}
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {f"features.bottleneck.norm.running_{name}" for name in ("mean", "var")}
    (layer,) = normed(net)
    assert layer.running_mean is not None
    layer.running_mean.fill_(1e6)
    remeasure(net, rows(40), 8, torch.Generator().manual_seed(1))
    assert all(torch.equal(w, after[name]) for name, w in net.state_dict().items())


@pytest.mark.parametrize(("n", "batch"), [(2, 2), (3, 2), (2, 64), (5, 4)])
def test_few_rows(n: int, batch: int) -> None:
    """No part is a single row, which has no variance; the share of the pass that is done ends at 1."""
    net, told = network(), list[float]()
    remeasure(net, rows(n), batch, torch.Generator(), tick=told.append)
    assert told[-1] == 1.0
    assert all(bool(torch.isfinite(w).all()) for w in net.state_dict().values())


def test_a_network_without_batch_norm_stays() -> None:
    """And no row passes through it."""
    net = nets.build(World(inputs=(8,), classes=3, model="mlp"))
    remeasure(net, torch.zeros(4, 5), 2, torch.Generator())
    assert normed(net) == []
