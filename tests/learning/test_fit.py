"""Mini-batch training."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor, nn

from tests.budgets import examples
from tideline.core.errors import Cancelled
from tideline.core.rows import MemoryRows
from tideline.core.step import Data
from tideline.learning.fit import batches, cross_entropy, fit


def seeded(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def line(n: int = 10, dtype: torch.dtype = torch.float64) -> Data:
    """Rows of two features, with labels."""
    x = torch.randn(n, 2, generator=seeded(1)).to(dtype)
    return Data(MemoryRows(x), (x[:, 0] > 0).long(), torch.zeros(n, dtype=torch.int64), ("d",))


def linear() -> nn.Module:
    """A linear classifier that starts at zero, in float64."""
    net = nn.Linear(2, 2).double()
    nn.init.zeros_(net.weight)
    nn.init.zeros_(net.bias)
    return net


@settings(max_examples=examples(50))
@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 5))
def test_an_epoch_sees_every_row_once(n: int, size: int, seed: int) -> None:
    """Batches part the rows: none twice, none left out, none larger than the size but for a joined last row."""
    parts = list(batches(n, size, seeded(seed)))
    assert sorted(torch.cat(parts).tolist()) == list(range(n))
    assert all(len(p) == size for p in parts[:-1])
    assert 0 < len(parts[-1]) <= size + 1


@settings(max_examples=examples(50))
@given(st.integers(2, 60), st.integers(2, 20))
def test_no_batch_is_a_single_row_of_many(n: int, size: int) -> None:
    """Batch norm can work on every batch: a lone last row joins the batch before it."""
    assert min(len(p) for p in batches(n, size, seeded())) >= 2


@settings(max_examples=examples(50))
@given(st.integers(1, 90), st.integers(1, 20), st.integers(0, 10))
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
    """Unequal batches count by their rows."""
    data, net, seen = line(7), linear(), []

    def loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        value = cross_entropy(net, x, y)
        seen.append((len(x), float(value.detach())))
        return value

    got = fit(net, data, loss, torch.optim.SGD(net.parameters(), lr=0.1), epochs=3, batch=5, rng=seeded())
    assert [n for n, _ in seen] == [5, 2] * 3
    assert got == pytest.approx(sum(n * v for n, v in seen[-2:]) / 7)


def test_progress_rises_to_one() -> None:
    """Ticks rise over all epochs and end at 1."""
    ticks: list[float] = []
    net = linear()
    fit(net, line(), cross_entropy, torch.optim.SGD(net.parameters()), epochs=2, batch=4, rng=seeded(), tick=ticks.append)
    assert ticks == sorted(ticks)
    assert ticks == pytest.approx([0.2, 0.4, 0.5, 0.7, 0.9, 1.0])


def test_a_cancelled_step_stops_at_the_next_batch() -> None:
    """What tick raises ends the training."""
    net, calls = linear(), []

    def tick(share: float) -> None:
        calls.append(share)
        raise Cancelled("withdrawn")

    with pytest.raises(Cancelled):
        fit(net, line(), cross_entropy, torch.optim.SGD(net.parameters()), epochs=2, batch=4, rng=seeded(), tick=tick)
    assert len(calls) == 1


def test_it_trains_in_training_mode() -> None:
    """Batch norm's statistics move, whatever mode the network was left in."""
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)).double().eval()
    before = net[0].running_mean.clone()
    fit(net, line(), cross_entropy, torch.optim.SGD(net.parameters()), epochs=1, batch=5, rng=seeded())
    assert not torch.equal(net[0].running_mean, before)


def test_counters_of_batches_stay_as_they_were() -> None:
    """A network is not to tell how many rows it has seen; what is measured moves as ever."""
    net = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)).double()
    net[0].num_batches_tracked.fill_(7)
    before = net[0].running_mean.clone()
    fit(net, line(), cross_entropy, torch.optim.SGD(net.parameters()), epochs=1, batch=5, rng=seeded())
    assert int(net[0].num_batches_tracked) == 7
    assert not torch.equal(net[0].running_mean, before)


def test_rows_without_labels_cannot_be_fitted() -> None:
    """Training needs labels: a target's rows have none."""
    data = line()
    with pytest.raises(AssertionError, match="labelled"):
        fit(
            linear(),
            Data(data.x, None, data.domain, data.domains),
            cross_entropy,
            torch.optim.SGD(linear().parameters()),
            epochs=1,
            batch=5,
            rng=seeded(),
        )


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
    """Bit for bit."""
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
