"""Mini-batch training, and what batch norm measures anew."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

from tests.learning.rows_in_memory import data_of
from tests.numerics.examples import for_all
from tideline import nets
from tideline.core.asked.world import World
from tideline.core.errors import Cancelled
from tideline.core.step import Data
from tideline.learning.fit import batches, cross_entropy, fit, normed, remeasure


def seeded(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def line(n: int = 10, dtype: torch.dtype = torch.float64) -> Data:
    """Rows of two features, with labels."""
    x = torch.randn(n, 2, generator=seeded(1)).to(dtype)
    return data_of(x, (x[:, 0] > 0).long())


def linear() -> nn.Module:
    """A linear classifier that starts at zero, in float64."""
    net = nn.Linear(2, 2).double()
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    return net


@for_all(50, st.integers(1, 60), st.integers(1, 20), st.integers(0, 5))
def test_an_epoch_sees_every_row_once(n: int, size: int, seed: int) -> None:
    """Batches part the rows: none twice, none left out, none larger than the size but for a joined last row."""
    parts = list(batches(n, size, seeded(seed)))
    assert sorted(torch.cat(parts).tolist()) == list(range(n))
    assert all(len(p) == size for p in parts[:-1])
    assert 0 < len(parts[-1]) <= size + 1


@for_all(50, st.integers(2, 60), st.integers(2, 20))
def test_no_batch_is_a_single_row_of_many(n: int, size: int) -> None:
    """Batch norm can work on every batch: a lone last row joins the batch before it."""
    assert min(len(p) for p in batches(n, size, seeded())) >= 2


@for_all(50, st.integers(1, 90), st.integers(1, 20), st.integers(0, 10))
def test_a_last_batch_may_be_held_to_a_least(n: int, least: int, more: int) -> None:
    """Where there are so many rows, every batch has them; none grows by as many."""
    parts = list(batches(n, least + more, seeded(), least))
    assert sorted(torch.cat(parts).tolist()) == list(range(n))
    assert min(map(len, parts)) >= min(n, least)
    assert max(map(len, parts)) < 2 * least + more


def test_batches_come_in_an_order_of_their_generator() -> None:
    """Equal generators give equal batches, other ones other batches, and a second epoch another order."""
    rng = seeded(3)
    first, second = (torch.cat(list(batches(20, 6, rng))).tolist() for _ in range(2))
    assert first == torch.cat(list(batches(20, 6, seeded(3)))).tolist()
    assert first != second
    assert first != torch.cat(list(batches(20, 6, seeded(4)))).tolist()


def test_a_full_batch_epoch_is_one_gradient_step() -> None:
    """Plain SGD over one batch moves by the gradient of the mean loss, as computed by hand."""
    data, net = line(), linear()
    assert data.y is not None
    one_hot = nn.functional.one_hot(data.y, 2).double()
    gradient = (0.5 - one_hot).T @ data.x.all() / len(data)
    loss = fit(net, data, cross_entropy, torch.optim.SGD(net.parameters(), lr=0.3), epochs=1, batch=10, rng=seeded())
    torch.testing.assert_close(net.state_dict()["weight"], -0.3 * gradient)
    assert loss == pytest.approx(torch.tensor(2.0).log().item(), abs=1e-6)


def test_the_loss_is_the_mean_over_rows_of_the_last_epoch() -> None:
    data, net, seen = line(7), linear(), []

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        value = cross_entropy(net, x, y)
        seen.append((len(x), float(value.detach())))
        return value

    got = fit(net, data, loss, torch.optim.SGD(net.parameters(), lr=0.1), epochs=3, batch=5, rng=seeded())
    assert [n for n, _ in seen] == [5, 2] * 3
    assert got == pytest.approx(sum(n * v for n, v in seen[-2:]) / 7)


def test_progress_rises_to_one() -> None:
    ticks: list[float] = []
    net = linear()
    fit(net, line(), cross_entropy, torch.optim.SGD(net.parameters()), epochs=2, batch=4, rng=seeded(), tick=ticks.append)
    assert ticks == sorted(ticks)
    assert ticks == pytest.approx([0.2, 0.4, 0.5, 0.7, 0.9, 1.0])


def test_a_cancelled_step_stops_at_the_next_batch() -> None:
    net, calls = linear(), []

    def tick(share: float) -> None:
        calls.append(share)
        raise Cancelled("withdrawn")

    with pytest.raises(Cancelled):
        fit(net, line(), cross_entropy, torch.optim.SGD(net.parameters()), epochs=2, batch=4, rng=seeded(), tick=tick)
    assert len(calls) == 1


def test_it_trains_in_training_mode() -> None:
    """Batch norm's statistics move, whatever mode the network was left in; no counter tells how many rows it has seen."""
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)).double().eval()
    net[0].num_batches_tracked.fill_(7)
    before = net[0].running_mean.clone()
    fit(net, line(), cross_entropy, torch.optim.SGD(net.parameters()), epochs=1, batch=5, rng=seeded())
    assert not torch.equal(net[0].running_mean, before) and int(net[0].num_batches_tracked) == 7


def test_rows_without_labels_cannot_be_fitted() -> None:
    net, unlabelled = linear(), replace(line(), y=None)
    with pytest.raises(AssertionError, match="labelled"):
        fit(net, unlabelled, cross_entropy, torch.optim.SGD(net.parameters()), epochs=1, batch=5, rng=seeded())


@pytest.mark.parametrize("steps", [1, 4, 7, 12])
def test_steps_count_mini_batches(steps: int) -> None:
    """So many are taken, in as many passes over the rows as that needs; the last one is cut short."""
    net, told = linear(), list[float]()
    by, seen = torch.optim.SGD(net.parameters(), lr=0.1), list[int]()

    def counted(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        seen.append(len(x))
        return cross_entropy(net, x, y)

    fit(net, line(), counted, by, epochs=99, batch=3, rng=seeded(), steps=steps, tick=told.append)
    assert len(seen) == steps
    assert told == [pytest.approx((i + 1) / steps) for i in range(steps)]


def test_as_many_steps_as_epochs_have_are_the_epochs() -> None:
    nets = [linear(), linear()]
    for net, more in zip(nets, ({"epochs": 2}, {"epochs": 1, "steps": 6}), strict=True):
        by = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        fit(net, line(), cross_entropy, by, batch=3, rng=seeded(), **more)  # type: ignore[arg-type]
    assert nets[0].weight.equal(nets[1].weight)


def test_a_long_gradient_is_shortened() -> None:
    """One step of rate 1 moves by the largest norm that is let through; a short one moves as it would."""
    moved = {}
    for clip in (0.0, 1e-3, 1e3):
        net = linear()
        by = torch.optim.SGD(net.parameters(), lr=1.0)
        fit(net, line(), cross_entropy, by, epochs=1, batch=10, rng=seeded(), clip=clip)
        moved[clip] = float(torch.cat([p.detach().flatten() for p in net.parameters()]).norm())
    assert moved[1e-3] == pytest.approx(1e-3, rel=1e-3) and moved[1e3] == moved[0.0] > 0.01


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
    net = nets.build(World(inputs=(8,), classes=3, model="mlp"))
    remeasure(net, torch.zeros(4, 5), 2, torch.Generator())
    assert normed(net) == []
