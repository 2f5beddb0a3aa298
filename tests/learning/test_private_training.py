"""DP-SGD: what a row can move, and what the noise covers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import strategies as st
from torch import Generator, Tensor, nn
from torch.nn.utils import parameters_to_vector

from tests.learning.rows_in_memory import data_of
from tests.numerics.examples import for_all
from tideline.core.errors import ConfigRefused
from tideline.core.rows import MemoryRows
from tideline.core.step import Data
from tideline.learning import private
from tideline.learning.fit import cross_entropy
from tideline.learning.private import fit_privately, row_gradients, sum_up, summing
from tideline.learning.private.summing import WHOLE, GridSum
from tideline.nets.grouped import with_group_norm
from tideline.nets.small import LeNet
from tideline.numerics.privacy.streams import Stream

TINY = 2.0**-40


def rows(n: int, *shape: int, seed: int = 1) -> Data:
    x = torch.randn(n, *shape, generator=Generator().manual_seed(seed))
    return data_of(x, torch.arange(n) % 3)


def mlp(*more: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), *more, nn.ReLU(), nn.Linear(6, 3))


def trained(net: nn.Module, data: Data, *, rate: float = 0.5, noise: float = 1.0, clip: float = 1.0, steps: int = 3) -> Tensor:
    by = torch.optim.SGD(net.parameters(), 0.5)
    stream = Stream(bytes(32), "test")
    fit_privately(net, data, cross_entropy, by, rate=rate, steps=steps, clip=clip, noise=noise, rows=20, stream=stream)
    return parameters_to_vector(net.parameters()).detach()


def total(net: nn.Module, data: Data, clip: float, size: int = 4) -> Tensor:
    parameters = {name: p for name, p in net.named_parameters() if p.requires_grad}
    found = GridSum(parameters, clip, "cpu")
    sum_up(found, row_gradients(net, cross_entropy), parameters, data, torch.arange(len(data)), size)
    return found.total


def on_grid(parts: Tensor, clip: float) -> Tensor:
    found = GridSum({"all": parts[0]}, clip, "cpu")
    found.add({"all": parts}, len(parts))
    return found.total


def by_hand(net: nn.Module, data: Data, clip: float) -> Tensor:
    """Each row's gradient by autograd, clipped, summed."""
    assert data.y is not None
    found = []
    for i in range(len(data)):
        grads = torch.autograd.grad(
            cross_entropy(net, data.x.batch(torch.tensor([i])), data.y[i : i + 1]), list(net.parameters())
        )
        flat = torch.cat([g.flatten() for g in grads])
        found.append(flat * min(1.0, clip / float(flat.norm())))
    return torch.stack(found).sum(0)


@pytest.mark.parametrize("clip", [0.1, 100.0])
def test_a_sum_is_that_of_gradients_by_row(clip: float) -> None:
    net, data = mlp(), rows(11, 4)
    assert torch.allclose(total(net, data, clip) * (clip / WHOLE), by_hand(net, data, clip), atol=1e-5 * clip)


def test_with_hardly_any_noise_it_is_plain_descent() -> None:
    data, plain = rows(20, 4), mlp()
    by = torch.optim.SGD(plain.parameters(), 0.5)
    for _ in range(3):
        by.zero_grad()
        cross_entropy(plain, data.x.batch(torch.arange(20)), data.y).backward()  # type: ignore[arg-type,no-untyped-call]
        by.step()
    found = trained(mlp(), data, rate=1.0, noise=TINY, clip=50.0)
    assert torch.allclose(found, parameters_to_vector(plain.parameters()), atol=1e-4)


@for_all(100, st.integers(1, 300), st.floats(-30, 30), st.floats(1e-3, 1e3), st.integers(0, 9))
def test_one_row_moves_a_sum_by_clip_at_most(d: int, power: float, clip: float, seed: int) -> None:
    part = torch.randn(1, d, generator=Generator().manual_seed(seed)) * 10.0**power
    moved = on_grid(torch.cat([part, part[:, : d // 2]], dim=1), clip).tolist()
    assert sum(v * v for v in moved) <= WHOLE**2
    if 10.0**power > 10 * clip:
        assert sum(v * v for v in moved) > 0.99 * WHOLE**2


@for_all(10, st.integers(0, 6), st.floats(0.01, 10))
def test_neighbours_differ_by_clip_at_most(without: int, clip: float) -> None:
    net, data = mlp(), rows(7, 4)
    rest = torch.tensor([i for i in range(7) if i != without])
    assert data.y is not None
    less = replace(data, x=MemoryRows(data.x.batch(rest)), y=data.y[rest], domain=data.domain[rest])
    apart = (total(net, data, clip, 1) - total(net, less, clip, 1)).tolist()
    assert 0 < sum(v * v for v in apart) <= WHOLE**2


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_counts_as_zero(bad: float) -> None:
    parts = torch.tensor([[1.0, 2.0], [bad, 1.0]])
    assert torch.equal(on_grid(parts, 10.0), on_grid(parts[:1], 10.0))


def test_rows_that_are_clipped_a_few_at_a_time_give_the_same_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """And memory that is used again holds nothing of the rows before."""
    parts = {"a": torch.randn(7, 2, 3), "b": torch.randn(7, 5)}
    sums = []
    for cached in (1, 22, 1000):
        monkeypatch.setattr(summing, "CACHED", cached)
        found = GridSum({name: part[0] for name, part in parts.items()}, 1.0, "cpu")
        found.add({name: part + 9 for name, part in parts.items()}, 5)
        found.clear()
        found.add(parts, 7)
        sums.append(found.total)
    assert torch.equal(sums[0], sums[1]) and torch.equal(sums[0], sums[2])


def test_an_empty_sample_is_a_step_of_noise() -> None:
    start = parameters_to_vector(mlp().parameters())
    found = trained(mlp(), rows(20, 4), rate=1e-9, noise=1.0, steps=1)
    assert not torch.equal(found, start)
    assert torch.equal(found, trained(mlp(), rows(3, 4, seed=9), rate=1e-9, noise=1.0, steps=1))


def test_the_number_of_rows_divides_nothing() -> None:
    """Rows without a gradient of their own, beside the others: the sum and its divisor stay."""
    data = rows(20, 4)
    assert data.y is not None
    double = replace(
        data, x=MemoryRows(data.x.batch(torch.arange(20).repeat(2))), y=data.y.repeat(2), domain=data.domain.repeat(2)
    )
    start = parameters_to_vector(mlp().parameters()).detach()
    once = trained(mlp(), data, rate=1.0, noise=TINY, steps=1) - start
    twice = trained(mlp(), double, rate=1.0, noise=TINY, steps=1) - start
    assert torch.allclose(twice, 2 * once, atol=1e-5)


def test_the_same_key_and_data_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = trained(mlp(nn.Dropout(0.5)), rows(20, 4))
    torch.rand(5)
    assert torch.equal(first, trained(mlp(nn.Dropout(0.5)), rows(20, 4)))


@pytest.mark.parametrize("size", [1, 2, 3, 16])
def test_sums_are_those_of_any_number_of_rows_at_once(size: int) -> None:
    """In float64 rounding to the grid leaves nothing of the order of arithmetic; rows of the sample are counted once."""
    net, data = mlp().double(), rows(13, 4)
    data = replace(data, x=MemoryRows(data.x.batch(torch.arange(13)).double()))
    assert torch.equal(total(net, data, 1.0, size), total(net, data, 1.0, 5))


def test_frozen_parameters_stay() -> None:
    net = mlp()
    first = next(net.parameters())
    first.requires_grad_(False)
    before = first.clone()
    trained(net, rows(20, 4))
    assert torch.equal(first, before)


@pytest.mark.parametrize("norm", [nn.GroupNorm(2, 6), nn.LayerNorm(6)])
def test_norms_of_a_row_are_trained(norm: nn.Module) -> None:
    assert torch.isfinite(trained(mlp(norm), rows(20, 4))).all()


def test_a_network_of_images_and_attention_are_trained() -> None:
    assert torch.isfinite(trained(LeNet(1, 8, 8, 3), rows(20, 1, 8, 8))).all()
    attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    assert torch.isfinite(trained(nn.Sequential(attention, nn.Flatten(), nn.Linear(20, 3)), rows(20, 5, 4))).all()


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(6), nn.SyncBatchNorm(6), nn.InstanceNorm1d(6, track_running_stats=True)])
def test_networks_that_mix_or_measure_rows_are_refused(layer: nn.Module) -> None:
    with pytest.raises(ConfigRefused, match=r"layer 1 .*(norm: group|track_running_stats=False)"):
        trained(mlp(layer), rows(20, 4))


def test_group_norm_takes_the_place_of_batch_norm() -> None:
    net = nn.Sequential(mlp(nn.BatchNorm1d(6)))
    private.check_private(changed := with_group_norm(net))
    assert isinstance(net[0][1], nn.BatchNorm1d) and isinstance(changed[0][1], nn.GroupNorm)  # type: ignore[index]
    assert isinstance(with_group_norm(nn.BatchNorm2d(48, affine=False)), nn.GroupNorm)


@pytest.mark.parametrize(
    ("name", "value"), [("rate", 0.0), ("rate", 1.5), ("clip", 0.0), ("noise", 0.0), ("noise", float("nan"))]
)
def test_settings_that_protect_nothing_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigRefused) as refused:
        trained(mlp(), rows(3, 4), **{name: value})  # type: ignore[arg-type]
    assert refused.value.context["path"] == name


def test_what_is_added_lies_on_the_grid() -> None:
    """The gradient that the optimiser reads is a whole number of steps: its least bits say nothing."""
    net = mlp().double()
    data = replace(rows(20, 4), x=MemoryRows(rows(20, 4).x.batch(torch.arange(20)).double()))
    before = parameters_to_vector(net.parameters()).detach().clone()
    nn.init.zeros_(net[0].weight)  # type: ignore[index, arg-type]
    by = torch.optim.SGD(net[0].parameters(), 1.0)  # type: ignore[index]
    fit_privately(net, data, cross_entropy, by, rate=0.5, steps=1, clip=1.0, noise=1.0, rows=32, stream=Stream(bytes(32)))
    steps = net[0].weight * (WHOLE * 16)  # type: ignore[index, operator]
    assert torch.equal(steps, steps.round()) and len(before)
